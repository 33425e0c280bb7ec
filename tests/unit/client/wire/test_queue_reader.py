"""A queue reader on fake brokers: records are leased on demand, settled once, never forgotten."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from penstock.client.errors import BrokerUnreachable, ClientError
from penstock.client.wire.cluster import WireCluster
from penstock.client.wire.errors import UnknownTopic
from penstock.client.wire.queue_leases import Lease, LeaseLost, OutcomeUnknown
from penstock.client.wire.queue_member import NotAQueue
from penstock.client.wire.queue_reader import QueueReader
from penstock.client.wire.settings import WireSettings
from penstock.protocol.kafka.api_keys import ApiKey
from tests.unit.client.wire.fake_broker import (
    HANG_UP,
    PATIENCE_S,
    TOPIC,
    FakeCluster,
    begun_since,
    wait_until,
)
from tests.unit.client.wire.fake_queue import (
    ACCEPT,
    LEAVE,
    REJECT,
    RELEASE,
    RENEW,
    FakeQueue,
    Slot,
)

SHORT_LEASE_MS = 300


def slots(count: int, prefix: str = "") -> list[Slot]:
    return [Slot(f"{prefix}{number}".encode()) for number in range(count)]


@contextmanager
def reading(
    cluster: FakeCluster, group: str = "g", topic: str = TOPIC, **settings: float
) -> Iterator[QueueReader]:
    chosen = {"retry_timeout_s": 20.0, "first_contact_timeout_s": 5.0, **settings}
    before = threading.enumerate()
    with (
        WireCluster(
            WireSettings(bootstrap=cluster.bootstrap, fetch_wait_ms=20, **chosen)
        ) as client,
        client.queue(group, [topic]) as reader,
    ):
        yield reader
    wait_until(lambda: not [one for one in begun_since(before) if one.name.startswith("queue")])


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(3) as made:
        made.leaders = {0: (1, 1), 1: (2, 1), 2: (3, 1)}
        yield made


@pytest.fixture
def queue(cluster: FakeCluster) -> FakeQueue:
    records = {partition: slots(4, f"{partition}-") for partition in range(3)}
    return FakeQueue(cluster, records, coordinator=3)


def take(reader: QueueReader) -> Lease:
    (lease,) = reader.take(1, PATIENCE_S)
    return lease


def leased(queue: FakeQueue) -> int:
    with queue.turn:
        return sum(one.member is not None for ones in queue.records.values() for one in ones)


def test_every_record_of_every_leader_is_taken_once(cluster: FakeCluster, queue: FakeQueue) -> None:
    seen = []
    with reading(cluster) as reader:
        while len(seen) < 12:
            for lease in reader.take(5, PATIENCE_S):
                seen.append(lease.record.value)
                lease.accept().result(PATIENCE_S)
        assert reader.take(1, 0.1) == []
    assert sorted(seen) == sorted(queue.values(ACCEPT))
    assert len(seen) == len(set(seen)) == 12


def test_nothing_is_leased_that_nobody_waits_for(cluster: FakeCluster, queue: FakeQueue) -> None:
    """Three leaders could give one each."""
    with reading(cluster) as reader:
        wait_until(lambda: bool(queue.heartbeats))
        assert leased(queue) == 0
        lease = take(reader)
        assert leased(queue) == 1
        lease.accept().result(PATIENCE_S)
        assert leased(queue) == 0


def test_what_was_taken_and_not_settled_goes_back_at_the_end(
    cluster: FakeCluster, queue: FakeQueue
) -> None:
    with reading(cluster) as reader:
        take(reader)
        take(reader).release().result(PATIENCE_S)
    assert leased(queue) == 0
    assert queue.heartbeats[-1].member_epoch == LEAVE
    assert queue.sessions == {}


def test_a_release_is_another_attempt_and_a_reject_the_end(
    cluster: FakeCluster, queue: FakeQueue
) -> None:
    queue.records = {0: slots(1)}
    with reading(cluster) as reader:
        first = take(reader)
        assert first.attempt == 1
        first.release().result(PATIENCE_S)
        second = take(reader)
        assert second.attempt == 2
        second.reject().result(PATIENCE_S)
    assert queue.slot(0, 0).end == REJECT


def test_a_lease_is_renewed_as_long_as_it_is_held(cluster: FakeCluster, queue: FakeQueue) -> None:
    queue.lease_ms = SHORT_LEASE_MS
    queue.records = {0: slots(1)}
    with reading(cluster) as reader:
        lease = take(reader)
        wait_until(lambda: len([one for one in queue.acks if one[3] == RENEW]) >= 3)
        lease.accept().result(PATIENCE_S)
    assert queue.slot(0, 0).end == ACCEPT
    assert queue.slot(0, 0).attempts == 1


def test_a_lost_lease_is_told_and_the_other_records_are_settled(
    cluster: FakeCluster, queue: FakeQueue
) -> None:
    queue.records = {0: slots(4)}
    with reading(cluster) as reader:
        leases = reader.take(4, PATIENCE_S)
        while len(leases) < 4:
            leases += reader.take(4 - len(leases), PATIENCE_S)
        with queue.turn:
            queue.slot(0, 2).member = "somebody else"
        outcomes = [one.accept() for one in leases]
        failures = [one.exception(PATIENCE_S) for one in outcomes]
    lost = {one.record.offset for one, failure in zip(leases, failures, strict=True) if failure}
    assert lost == {2}
    assert isinstance(failures[[one.record.offset for one in leases].index(2)], LeaseLost)
    assert queue.slot(0, 2).member == "somebody else"


def test_a_new_leader_is_followed_and_leases_that_it_knows_are_kept(
    cluster: FakeCluster, queue: FakeQueue
) -> None:
    queue.is_durable = True
    queue.records = {0: slots(2)}
    with reading(cluster) as reader:
        lease = take(reader)
        cluster.leaders[0] = (2, 2)
        cluster[1].close()
        lease.accept().result(PATIENCE_S)
        take(reader).accept().result(PATIENCE_S)
    assert [(node, at) for node, _, at, kind in queue.acks if kind == ACCEPT] == [(2, 0), (2, 1)]
    assert queue.slot(0, 0).attempts == 1


def test_a_leader_that_refuses_is_left_for_the_one_that_leads(
    cluster: FakeCluster, queue: FakeQueue
) -> None:
    queue.is_durable = True
    queue.records = {0: slots(2)}
    with reading(cluster) as reader:
        first = take(reader)
        with queue.turn:
            cluster.leaders[0] = (3, 2)
        first.accept().result(PATIENCE_S)
        take(reader).accept().result(PATIENCE_S)
    assert queue.is_done()


def test_a_record_that_comes_back_after_a_lost_connection_is_not_handed_out_twice(
    cluster: FakeCluster, queue: FakeQueue
) -> None:
    queue.records = {0: slots(2)}
    with reading(cluster) as reader:
        first = take(reader)
        queue.end_sessions(1)
        cluster[1].hang_up()
        # To get this one, the reader asks the broker again, which has the first one to give, too.
        second = take(reader)
        assert second.record.offset == 1
        assert leased(queue) == 2
        first.accept().result(PATIENCE_S)
        second.accept().result(PATIENCE_S)
    assert queue.is_done()
    assert [(at, kind) for _, _, at, kind in queue.acks if kind == ACCEPT] == [
        (0, ACCEPT),
        (1, ACCEPT),
    ]


@pytest.mark.parametrize("trouble", ["hang up", "no session", "wrong epoch"])
def test_a_session_that_is_lost_is_opened_again(
    cluster: FakeCluster, queue: FakeQueue, trouble: str
) -> None:
    queue.records = {0: slots(3)}
    with reading(cluster) as reader:
        take(reader).accept().result(PATIENCE_S)
        if trouble == "hang up":
            queue.end_sessions(1)
            cluster[1].hang_up()
        elif trouble == "no session":
            queue.end_sessions(1)
        else:
            with queue.turn:
                queue.sessions = dict.fromkeys(queue.sessions, 99)
        take(reader).accept().result(PATIENCE_S)
        take(reader).accept().result(PATIENCE_S)
    assert queue.is_done()


def lose_one_answer(cluster: FakeCluster, queue: FakeQueue, *, is_heard: bool) -> None:
    """The connection ends after, or before, the broker has heard the next acknowledgement."""
    handle = cluster[1].handlers[ApiKey.SHARE_ACKNOWLEDGE]
    troubles = [HANG_UP]

    def hang_up_once(request: object, version: int) -> object:
        if not troubles:
            return handle(request, version)
        if is_heard:
            handle(request, version)
        queue.end_sessions(1)
        return troubles.pop()

    cluster[1].handlers[ApiKey.SHARE_ACKNOWLEDGE] = hang_up_once


@pytest.mark.parametrize("is_heard", [True, False])
def test_an_ack_whose_answer_is_lost_is_unknown_and_its_record_is_not_lost(
    cluster: FakeCluster, queue: FakeQueue, is_heard: bool
) -> None:
    queue.records = {0: slots(1)}
    lose_one_answer(cluster, queue, is_heard=is_heard)
    with reading(cluster) as reader:
        assert isinstance(take(reader).accept().exception(PATIENCE_S), OutcomeUnknown)
        assert (queue.slot(0, 0).end == ACCEPT) == is_heard
        if not is_heard:
            take(reader).accept().result(PATIENCE_S)
    assert queue.slot(0, 0).end == ACCEPT


def test_an_ack_that_a_broker_with_durable_leases_did_not_hear_is_said_again(
    cluster: FakeCluster, queue: FakeQueue
) -> None:
    queue.is_durable = True
    queue.records = {0: slots(1)}
    lose_one_answer(cluster, queue, is_heard=False)
    with reading(cluster) as reader:
        take(reader).accept().result(PATIENCE_S)
    assert queue.slot(0, 0).end == ACCEPT


def test_the_coordinator_is_followed_and_a_member_that_was_forgotten_joins_again(
    cluster: FakeCluster, queue: FakeQueue
) -> None:
    with reading(cluster) as reader:
        take(reader).accept().result(PATIENCE_S)
        with queue.turn:
            queue.coordinator = 2
            queue.refusals = [25]
        cluster[3].hang_up()
        wait_until(lambda: [one.member_epoch for one in queue.heartbeats].count(0) >= 2)
        take(reader).accept().result(PATIENCE_S)
    assert {one.member_id for one in queue.heartbeats} == {reader.member_id}
    joins = [one for one in queue.heartbeats if one.member_epoch == 0]
    assert all(one.subscribed_topic_names == [TOPIC] for one in joins)


@pytest.mark.parametrize("code", [69, 23])
def test_a_group_of_another_kind_is_told(cluster: FakeCluster, queue: FakeQueue, code: int) -> None:
    queue.refusals = [code] * 100
    with reading(cluster) as reader, pytest.raises(NotAQueue, match="is not a queue"):
        reader.take(1, PATIENCE_S)


def test_what_a_coordinator_refuses_for_good_is_told(
    cluster: FakeCluster, queue: FakeQueue
) -> None:
    queue.refusals = [81] * 100
    with reading(cluster) as reader, pytest.raises(ClientError, match="as many members as it may"):
        reader.take(1, PATIENCE_S)


def test_a_topic_that_does_not_exist_and_brokers_that_do_not_answer_are_told_at_once(
    cluster: FakeCluster, queue: FakeQueue
) -> None:
    missing = pytest.raises(UnknownTopic, match="Topic nothing does not exist")
    with missing, reading(cluster, topic="nothing"):
        pass
    for node in cluster.nodes.values():
        node.close()
    silent = pytest.raises(BrokerUnreachable, match="No broker answers at")
    with silent, reading(cluster, first_contact_timeout_s=0.2):
        pass


def test_brokers_that_can_not_renew_are_refused() -> None:
    with FakeCluster(versions={ApiKey.SHARE_FETCH: (1, 1)}) as old:
        FakeQueue(old, {0: slots(1)})
        with reading(old) as reader, pytest.raises(ClientError, match="'share fetch' in version 2"):
            reader.take(1, PATIENCE_S)


def test_those_who_wait_to_take_return_when_nothing_shall_be_taken(
    cluster: FakeCluster, queue: FakeQueue
) -> None:
    queue.records = {0: []}
    with reading(cluster) as reader:
        found: list[list[Lease]] = []
        waiting = threading.Thread(target=lambda: found.append(reader.take(1)))
        waiting.start()
        reader.stop_taking()
        waiting.join(PATIENCE_S)
        assert found == [[]]
        assert reader.take(1) == []


def test_a_lease_that_outlives_its_reader_is_lost(cluster: FakeCluster, queue: FakeQueue) -> None:
    with reading(cluster) as reader:
        lease = take(reader)
    assert isinstance(lease.accept().exception(0), LeaseLost)
    assert queue.acks == [] or RELEASE not in {kind for *_, kind in queue.acks}
