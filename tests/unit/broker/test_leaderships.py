"""Proves what a broker tells of leaders: the newest it knows, and only those that are there."""

import pytest

from penstock.broker.leaderships import DEAD_BROKER_TOLD_S, Leader, PartitionView
from penstock.model.errors import Reason, Refused
from penstock.model.ids import NO_TOPIC_ID, BrokerId, Term, TopicName
from tests.unit.broker.lone_leaderships import (
    TOPIC,
    TOPIC_ID,
    MadeUpCluster,
    broker,
    topic_on,
)


def cluster_of_three(*assignments: tuple[int, ...]) -> MadeUpCluster:
    topic = topic_on(*(assignments or ((1, 2, 3),)))
    return MadeUpCluster(broker(1, "a"), broker(2, "b"), broker(3), topics=(topic,))


def view(cluster: MadeUpCluster, index: int = 0) -> PartitionView:
    (found,) = cluster.leaderships.describe(topic_on((1, 2, 3), (2, 3)), index, index + 1)
    return found


def test_a_partition_has_no_leader_until_one_is_heard_of() -> None:
    cluster = cluster_of_three()
    assert view(cluster) == PartitionView(0, -1, -1, [1, 2, 3], [], [])
    cluster.announce(0, leader=2, term=4, in_sync=(2, 3))
    assert view(cluster) == PartitionView(0, 2, 4, [1, 2, 3], [2, 3], [])


def test_a_leader_that_is_gone_is_not_told_and_its_term_is() -> None:
    cluster = cluster_of_three()
    cluster.announce(0, leader=2, term=4, in_sync=(2, 3))
    cluster.dead = {2}
    assert view(cluster) == PartitionView(0, -1, 4, [1, 2, 3], [3], [2])
    cluster.announce(0, leader=3, term=5, in_sync=(3,))
    assert view(cluster) == PartitionView(0, 3, 5, [1, 2, 3], [3], [2])


def test_it_never_goes_back_to_an_older_term() -> None:
    cluster = cluster_of_three()
    cluster.announce(0, leader=3, term=5, in_sync=(3,))
    cluster.announce(0, leader=2, term=4, in_sync=(2, 3))
    assert view(cluster).leader == 3
    cluster.partitions.put(0, leads=False, term=4, leader=2)
    assert view(cluster).leader == 3


def test_a_replica_here_may_know_of_a_newer_leader() -> None:
    cluster = cluster_of_three()
    cluster.announce(0, leader=2, term=4, in_sync=(2, 3))
    cluster.partitions.put(0, leads=False, term=6, leader=3)
    assert view(cluster)[:3] == (0, 3, 6)


def test_leadership_that_this_broker_lost_is_no_longer_announced() -> None:
    cluster = cluster_of_three()
    replica = cluster.partitions.put(0, leads=True, term=4, leader=1)
    cluster.announce(0, leader=1, term=4, in_sync=(1, 2))
    assert view(cluster).leader == 1
    replica.is_leader = False
    assert view(cluster).leader == -1
    assert cluster.leaderships.hint(TOPIC, NO_TOPIC_ID, 0) is None


def test_a_stopped_replica_is_offline() -> None:
    cluster = cluster_of_three()
    cluster.partitions.put(0, leads=False, term=4, leader=2).stopped_because = OSError("damaged")
    cluster.announce(0, leader=2, term=4, in_sync=(2,))
    assert view(cluster) == PartitionView(0, 2, 4, [1, 2, 3], [2], [1])


def test_brokers_that_can_be_reached_and_those_that_can_not() -> None:
    cluster = cluster_of_three()
    cluster.dead = {3}
    leaderships = cluster.leaderships
    assert [each.id for each in leaderships.brokers(0.0)] == [1, 2, 3]
    assert [each.id for each in leaderships.brokers(DEAD_BROKER_TOLD_S)] == [1, 2]
    told = [(each.id, is_alive) for each, is_alive in leaderships.all_brokers()]
    assert told == [(1, True), (2, True), (3, False)]
    assert leaderships.controller() == 2


def test_admin_requests_go_to_a_controller_whose_address_is_known_or_here() -> None:
    cluster = cluster_of_three()
    cluster.controller_id = BrokerId(2)
    assert cluster.leaderships.admin_broker() == 2
    del cluster.brokers[BrokerId(2)]
    assert cluster.leaderships.admin_broker() == cluster.broker_id


def test_a_broker_without_a_controller_can_not_judge_who_is_gone() -> None:
    cluster = cluster_of_three()
    leaderships = cluster.leaderships
    assert leaderships.isolated_s(100.0) == 0
    cluster.dead = {2, 3}
    assert leaderships.controller() == -1
    assert [each.id for each in leaderships.brokers(0.0)] == [1, 2, 3]
    assert leaderships.isolated_s(110.0) == 0
    assert leaderships.isolated_s(114.5) == 4.5
    cluster.dead = {3}
    assert leaderships.isolated_s(115.0) == 0
    cluster.dead = {2}
    assert leaderships.isolated_s(120.0) == 0


def test_a_broker_that_stands_alone_is_never_cut_off() -> None:
    cluster = MadeUpCluster(broker(1))
    assert cluster.leaderships.controller() == 2
    cluster.dead = {2}
    assert cluster.leaderships.isolated_s(1.0) == 0
    assert cluster.leaderships.isolated_s(100.0) == 0


def test_a_client_is_sent_to_a_leader_that_is_there() -> None:
    cluster = cluster_of_three()
    assert cluster.leaderships.reachable_leader(TOPIC_ID, 0) is None
    cluster.announce(0, leader=2, term=4, in_sync=(2, 3))
    found = cluster.leaderships.reachable_leader(TOPIC_ID, 0)
    assert found is not None
    assert (found.id, found.kafka.host) == (2, "host-2")
    cluster.dead = {2}
    assert cluster.leaderships.reachable_leader(TOPIC_ID, 0) is None


def test_hints_by_name_and_by_id() -> None:
    cluster = cluster_of_three()
    cluster.announce(0, leader=2, term=4, in_sync=(2, 3))
    expected = Leader(BrokerId(2), Term(4), (2, 3))
    assert cluster.leaderships.hint(TOPIC, NO_TOPIC_ID, 0) == expected
    assert cluster.leaderships.hint(TopicName(""), TOPIC_ID, 0) == expected
    assert cluster.leaderships.hint(TopicName("other"), NO_TOPIC_ID, 0) is None


def refusal_of_lead(cluster: MadeUpCluster, topic: str, partition: int) -> Reason:
    with pytest.raises(Refused) as caught:
        cluster.leaderships.lead(TopicName(topic), partition)
    return caught.value.reason


def test_what_is_elsewhere_is_told_apart_from_what_is_nowhere() -> None:
    cluster = cluster_of_three((2, 3), (1, 2))
    assert refusal_of_lead(cluster, TOPIC, 0) is Reason.NOT_LEADER_OR_FOLLOWER
    assert refusal_of_lead(cluster, TOPIC, 2) is Reason.UNKNOWN_TOPIC_OR_PARTITION
    assert refusal_of_lead(cluster, TOPIC, -1) is Reason.UNKNOWN_TOPIC_OR_PARTITION
    assert refusal_of_lead(cluster, "other", 0) is Reason.UNKNOWN_TOPIC_OR_PARTITION
    replica = cluster.partitions.put(1, leads=False, term=4, leader=2)
    assert refusal_of_lead(cluster, TOPIC, 1) is Reason.NOT_LEADER_OR_FOLLOWER
    replica.is_leader = True
    assert cluster.leaderships.lead(TOPIC, 1) is replica
