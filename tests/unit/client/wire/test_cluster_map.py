"""The client's map of a cluster: it finds leaders, believes newer news, and asks any node that"
" lives."""

import time

import pytest

from penstock.client.errors import BrokerUnreachable, ClientError
from penstock.client.free_ports import HeldPorts
from penstock.client.wire.cluster import WireCluster
from penstock.client.wire.cluster_map import ClusterMap, Location
from penstock.client.wire.errors import UnknownTopic
from penstock.client.wire.links import IDLE_LINKS_MAX, Links
from penstock.client.wire.settings import WireSettings
from penstock.model.endpoint import Endpoint
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.messages.fetch import LeaderIdAndEpoch, NodeEndpoint
from penstock.protocol.kafka.messages.metadata import MetadataResponse, MetadataResponseTopic
from tests.unit.client.wire.fake_broker import HANG_UP, TOPIC, TOPIC_ID, FakeCluster, at


def settings_for(bootstrap: str, **changes: float) -> WireSettings:
    return WireSettings(bootstrap=bootstrap, first_contact_timeout_s=0.1, **changes)  # type: ignore[arg-type]


def map_of(cluster: FakeCluster) -> ClusterMap:
    settings = settings_for(cluster.bootstrap)
    return ClusterMap(settings, Links(settings))


def location(cluster: FakeCluster, node: int, epoch: int) -> Location:
    return Location(Endpoint("127.0.0.1", cluster[node].port), epoch, TOPIC_ID)


def test_a_leader_is_asked_for_once_and_again_when_it_is_forgotten() -> None:
    with FakeCluster(2) as cluster:
        known = map_of(cluster)
        assert known.locate(at()) == location(cluster, 1, 1)
        cluster.leaders[0] = (2, 2)
        assert known.locate(at()) == location(cluster, 1, 1)
        known.forget_leader(at())
        assert known.locate(at()) == location(cluster, 2, 2)
        assert sum(len(node.asked) for node in cluster.nodes.values()) == 2


def test_a_broker_that_lags_behind_is_not_believed() -> None:
    with FakeCluster(2) as cluster:
        cluster.leaders[0] = (2, 5)
        known = map_of(cluster)
        known.locate(at())
        known.forget_leader(at())
        cluster.leaders[0] = (1, 4)
        assert known.locate(at()).endpoint is None
        cluster.leaders[0] = (2, 5)
        assert known.locate(at()) == location(cluster, 2, 5)
        # Another topic of the same name starts again.
        cluster.topic_id = type(TOPIC_ID)(int=8)
        cluster.leaders[0] = (1, 0)
        known.forget_leader(at())
        assert known.locate(at()).epoch == 0


def test_a_hint_is_taken_when_it_is_news_and_names_an_address() -> None:
    with FakeCluster(2) as cluster:
        known = map_of(cluster)
        known.locate(at())
        hint = LeaderIdAndEpoch(leader_id=9, leader_epoch=2)
        assert not known.take_hint(at(), None, [])
        assert not known.take_hint(at(), hint, [])
        assert not known.take_hint(at(), LeaderIdAndEpoch(leader_id=2, leader_epoch=1), [])
        nodes = [NodeEndpoint(node_id=9, host="localhost", port=99)]
        assert known.take_hint(at(), hint, nodes)
        assert known.locate(at()) == Location(Endpoint("localhost", 99), 2, TOPIC_ID)
        assert not known.take_hint(at(), hint, nodes)


def test_whoever_lives_is_asked() -> None:
    with FakeCluster(3) as cluster:
        known = map_of(cluster)
        cluster[1].close()
        cluster[2].handlers[ApiKey.METADATA] = lambda request, version: HANG_UP
        assert known.topic(TOPIC).name == TOPIC


def test_a_broker_that_knows_no_brokers_is_passed_over() -> None:
    with FakeCluster(2) as cluster:
        cluster[1].handlers[ApiKey.METADATA] = lambda request, version: MetadataResponse()
        assert map_of(cluster).topic(TOPIC).name == TOPIC


def test_nobody_there_is_told_soon() -> None:
    with HeldPorts() as ports:
        (dead,) = ports.take(1)
        with pytest.raises(BrokerUnreachable, match=f"No broker answers at 127.0.0.1:{dead}: conn"):
            WireCluster(settings_for(f"127.0.0.1:{dead}")).latest([at()])


def test_brokers_that_were_found_before_are_waited_for() -> None:
    """The client of a new task knows by its settings that the address is right."""
    with HeldPorts() as ports:
        (dead,) = ports.take(1)
        known = settings_for(f"127.0.0.1:{dead}", retry_timeout_s=0.8).once_reached()
        began = time.monotonic()
        with pytest.raises(BrokerUnreachable):
            WireCluster(known).latest([at()])
        assert time.monotonic() - began > 0.8


def test_an_address_that_is_none_is_told_at_once() -> None:
    with pytest.raises(ClientError, match="'nowhere' is not HOST:PORT"):
        WireCluster(settings_for("nowhere"))


def test_topics_and_partitions_that_do_not_exist_are_named() -> None:
    with FakeCluster() as cluster, WireCluster(settings_for(cluster.bootstrap)) as client:
        assert client.partitions_known([TOPIC, "nope"]) == {TOPIC: [0]}
        with pytest.raises(UnknownTopic, match="Topic nope does not exist"):
            client.partitions([TOPIC, "nope"])
        with pytest.raises(UnknownTopic, match="Topic orders has no partition 3: it has 1"):
            client.latest([at(3)])


def test_a_topic_that_is_just_being_made_is_waited_for() -> None:
    with FakeCluster() as cluster, WireCluster(settings_for(cluster.bootstrap)) as client:
        full = cluster.metadata
        answers = iter([True, True])

        def metadata(request: object, version: int) -> MetadataResponse:
            answer = full(request, version)  # type: ignore[arg-type]
            if next(answers, False):
                answer.topics = [MetadataResponseTopic(name=TOPIC, error_code=5)]
            return answer

        cluster[1].handlers[ApiKey.METADATA] = metadata
        assert client.partition_count(TOPIC, may_create=True) == 1
        assert [one.allow_auto_topic_creation for one in cluster[1].requests(ApiKey.METADATA)] == [
            True,
            True,
            True,
        ]


def test_idle_links_are_used_again_unless_the_broker_closed_them() -> None:
    with FakeCluster() as cluster:
        links = Links(settings_for(cluster.bootstrap))
        endpoint = Endpoint("127.0.0.1", cluster[1].port)
        first = links.borrow(endpoint, 1.0)
        links.give_back(endpoint, first)
        assert links.borrow(endpoint, 1.0) is first
        links.give_back(endpoint, first)
        cluster[1].hang_up()
        assert first.socket.recv(1, 2) == b""
        second = links.borrow(endpoint, 1.0)
        assert second is not first
        many = [links.borrow(endpoint, 1.0) for _ in range(IDLE_LINKS_MAX + 2)]
        for link in (second, *many):
            links.give_back(endpoint, link)
        assert sum(link.socket.fileno() >= 0 for link in (second, *many)) == IDLE_LINKS_MAX
        links.close()
        assert all(link.socket.fileno() < 0 for link in (second, *many))
