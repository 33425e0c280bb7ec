"""A fetcher reads a range whatever brokers answer: it follows leaders and ends in time."""

import threading
import time
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from penstock.client.errors import ClientError
from penstock.client.wire.cluster import WireCluster
from penstock.client.wire.errors import GaveUp, Malformed, OffsetOutOfRange, UnknownTopic
from penstock.client.wire.settings import WireSettings
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.messages.fetch import (
    AbortedTransaction,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
)
from penstock.protocol.kafka.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tests.unit.client.wire.fake_broker import (
    HANG_UP,
    PATIENCE_S,
    SILENCE,
    TOPIC,
    FakeBroker,
    FakeCluster,
    at,
    batch,
    begun_since,
    fetched,
    wanted_offset,
)

LOG = [batch(b"a", b"b", base_offset=0), batch(b"c", base_offset=5), batch(b"d", base_offset=6)]
OFFSETS = [(0, 2), (5, 6), (6, 7)]


def serve(request: FetchRequest, version: int) -> FetchResponse:
    """A leader's honest answer: one batch at a time."""
    offset = wanted_offset(request)
    if offset > 7:
        return fetched(code=1)
    found = next((LOG[at_] for at_, (_, end) in enumerate(OFFSETS) if offset < end), None)
    return fetched(found, high_watermark=7)


def list_offsets(request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
    wanted = request.topics[0].partitions[0].timestamp
    part = ListOffsetsPartitionResponse(partition_index=0, offset=0 if wanted == -2 else 7)
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=TOPIC, partitions=[part])])


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(2) as made:
        for node in made.nodes.values():
            node.handlers |= {ApiKey.FETCH: serve, ApiKey.LIST_OFFSETS: list_offsets}
        yield made


def client_of(cluster: FakeCluster, **changes: Any) -> WireCluster:
    settings = {"retry_timeout_s": 10.0, "fetch_wait_ms": 10} | changes
    return WireCluster(WireSettings(bootstrap=cluster.bootstrap, **settings))


def read(cluster: FakeCluster, start: int, stop: int, **changes: Any) -> list[bytes]:
    with client_of(cluster, **changes) as client, client.fetcher(at(), start, stop) as fetcher:
        return [bytes(one.data) for one in fetcher]


def misbehave(broker: FakeBroker, *answers: object) -> None:
    """These answers come first, then honest ones."""
    left = list(answers)
    broker.handlers[ApiKey.FETCH] = lambda request, version: (
        left.pop(0) if left else serve(request, version)
    )


@pytest.mark.parametrize(
    ("start", "stop", "batches"),
    [(0, 7, LOG), (1, 2, LOG[:1]), (2, 7, LOG[1:]), (3, 5, []), (6, 7, LOG[2:]), (7, 7, [])],
)
def test_a_range_is_read_with_its_gaps(
    cluster: FakeCluster, start: int, stop: int, batches: list[bytes]
) -> None:
    assert read(cluster, start, stop) == batches


def test_an_answer_that_reaches_past_the_range_is_cut(cluster: FakeCluster) -> None:
    misbehave(cluster[1], fetched(b"".join(LOG), high_watermark=7))
    assert read(cluster, 1, 6) == [LOG[0] + LOG[1]]


def test_a_range_ends_when_nothing_is_left_before_its_end(cluster: FakeCluster) -> None:
    cluster[1].handlers[ApiKey.FETCH] = lambda request, version: fetched(high_watermark=9)
    assert read(cluster, 3, 9) == []
    assert len(cluster[1].requests(ApiKey.FETCH)) == 2


def test_the_log_is_waited_for_but_not_for_ever(cluster: FakeCluster) -> None:
    misbehave(cluster[1], *[fetched(high_watermark=0) for _ in range(4)])
    assert read(cluster, 0, 7) == LOG
    with pytest.raises(GaveUp, match=r"reading partition 0 of topic orders after 0.2 s.*ends at 7"):
        read(cluster, 0, 8, retry_timeout_s=0.2)


def test_an_uncommitted_end_is_no_end_for_readers_of_committed_records(
    cluster: FakeCluster,
) -> None:
    aborted = [AbortedTransaction(producer_id=4, first_offset=1)]
    misbehave(
        cluster[1],
        fetched(LOG[0], high_watermark=7, last_stable_offset=2, aborted_transactions=aborted),
        fetched(high_watermark=7, last_stable_offset=2),
    )
    with (
        client_of(cluster, isolation_read_committed=True) as client,
        client.fetcher(at(), 0, 7) as fetcher,
    ):
        found = list(fetcher)
    assert [one.aborted for one in found] == [((4, 1),), (), ()]
    assert [bytes(one.data) for one in found] == LOG
    assert all(one.isolation_level == 1 for one in cluster[1].requests(ApiKey.FETCH))


@pytest.mark.parametrize(
    "trouble", [fetched(code=code) for code in (6, 74, 75, 5, 56, 78)] + [HANG_UP]
)
def test_trouble_that_passes_is_sat_out(cluster: FakeCluster, trouble: object) -> None:
    misbehave(cluster[1], trouble, trouble)
    assert read(cluster, 0, 7) == LOG


def test_a_silent_leader_is_given_up_after_the_request_time_out(cluster: FakeCluster) -> None:
    misbehave(cluster[1], SILENCE)
    assert read(cluster, 0, 7, request_timeout_s=0.5) == LOG


def test_a_new_leader_is_found_by_metadata(cluster: FakeCluster) -> None:
    def refuse(request: FetchRequest, version: int) -> FetchResponse:
        cluster.leaders[0] = (2, 2)
        return fetched(code=6)

    cluster[1].handlers[ApiKey.FETCH] = refuse
    assert read(cluster, 0, 7) == LOG
    assert len(cluster[1].requests(ApiKey.FETCH)) == 1


def test_a_hint_saves_the_question(cluster: FakeCluster) -> None:
    hint = LeaderIdAndEpoch(leader_id=2, leader_epoch=9)
    node = NodeEndpoint(node_id=2, host="127.0.0.1", port=cluster[2].port)
    misbehave(cluster[1], fetched(code=6, current_leader=hint, node_endpoints=[node]))
    assert read(cluster, 0, 7) == LOG
    assert len(cluster[1].requests(ApiKey.METADATA)) == 1
    asked = cluster[2].requests(ApiKey.FETCH)[0]
    assert asked.topics[0].partitions[0].current_leader_epoch == 9


def test_an_offset_outside_the_log_is_told_with_its_ends(cluster: FakeCluster) -> None:
    with pytest.raises(OffsetOutOfRange, match="Offset 8 of partition 0 of topic orders") as caught:
        read(cluster, 8, 20)
    assert (caught.value.log_start, caught.value.log_end) == (0, 7)


def test_a_wrong_complaint_about_the_range_is_sat_out(cluster: FakeCluster) -> None:
    misbehave(cluster[1], fetched(code=1))
    assert read(cluster, 0, 7) == LOG


def test_a_topic_that_was_made_anew_is_not_read_on(cluster: FakeCluster) -> None:
    left = [LOG[0]]

    # Before the first answer is looked at, the next one may have come.
    def other_topic_then(request: FetchRequest, version: int) -> FetchResponse:
        if left:
            return fetched(left.pop(), high_watermark=7)
        cluster.topic_id = UUID(int=99)
        return fetched(code=100)

    cluster[1].handlers[ApiKey.FETCH] = other_topic_then
    with client_of(cluster) as client, client.fetcher(at(), 0, 7) as fetcher:
        found = iter(fetcher)
        assert next(found).data == LOG[0]
        with pytest.raises(ClientError, match="was deleted and created again"):
            list(found)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (fetched(b"\7" * 100, high_watermark=7), "from offset 0 on makes no sense"),
        (fetched(LOG[0], high_watermark=7, partition_index=3), "and sent another"),
        (fetched(code=29), "refused to read partition 0 of topic orders: topic auth"),
        (fetched(code=-1), "unknown server error"),
        (fetched(code=9999), "error 9999"),
    ],
)
def test_what_will_not_pass_is_told(cluster: FakeCluster, answer: object, said: str) -> None:
    misbehave(cluster[1], answer)
    with pytest.raises(ClientError, match=said):
        read(cluster, 0, 7)


def test_a_batch_that_was_cut_short_is_asked_for_in_full(cluster: FakeCluster) -> None:
    misbehave(cluster[1], fetched(LOG[0][:40], high_watermark=7))
    assert read(cluster, 0, 7, fetch_bytes_max=40) == LOG
    asked = [one.topics[0].partitions[0] for one in cluster[1].requests(ApiKey.FETCH)]
    assert [one.partition_max_bytes for one in asked][:2] == [40, len(LOG[0])]


def test_a_batch_that_claims_too_much_is_refused(cluster: FakeCluster) -> None:
    huge = bytearray(LOG[0][:40])
    huge[8:12] = (1 << 30).to_bytes(4, "big")
    misbehave(cluster[1], fetched(bytes(huge), high_watermark=7))
    with pytest.raises(Malformed, match="claims 1073741836 bytes, which is too much"):
        read(cluster, 0, 7)


@pytest.mark.parametrize(("newest", "by_name"), [(4, True), (12, True), (18, False)])
def test_old_brokers_are_asked_in_their_versions(newest: int, by_name: bool) -> None:
    with FakeCluster(versions={ApiKey.FETCH: (4, newest), ApiKey.METADATA: (0, 13)}) as cluster:
        cluster[1].handlers[ApiKey.FETCH] = serve
        assert read(cluster, 0, 7) == LOG
        asked = [one for one in cluster[1].asked if one.key == ApiKey.FETCH]
        assert {one.version for one in asked} == {newest}
        assert (asked[0].request.topics[0].topic == TOPIC) == by_name


def test_brokers_without_topic_ids_are_asked_by_name() -> None:
    with FakeCluster(versions={ApiKey.METADATA: (0, 9)}) as cluster:
        cluster[1].handlers[ApiKey.FETCH] = serve
        assert read(cluster, 0, 7) == LOG
        assert {one.version for one in cluster[1].asked if one.key == ApiKey.FETCH} == {12}


def test_only_so_much_is_read_ahead(cluster: FakeCluster) -> None:
    served = threading.Semaphore(0)

    def count(request: FetchRequest, version: int) -> FetchResponse:
        served.release()
        offset = wanted_offset(request)
        return fetched(batch(b"x", base_offset=offset), high_watermark=1_000)

    cluster[1].handlers[ApiKey.FETCH] = count
    before = threading.enumerate()
    with client_of(cluster, fetches_ahead_max=2) as client:
        with client.fetcher(at(), 0, 1_000) as fetcher:
            values = iter(fetcher)
            next(values)
            # One is in use, two lie ready, and one waits to be put down.
            for _ in range(4):
                assert served.acquire(timeout=PATIENCE_S)
            assert not served.acquire(timeout=0.1)
        assert [one for one in begun_since(before) if one.name.startswith("fetch")] == []


@pytest.mark.parametrize("answer", [SILENCE, fetched(code=6), fetched(high_watermark=0)])
def test_a_fetcher_that_waits_is_closed_at_once(cluster: FakeCluster, answer: object) -> None:
    asked = threading.Event()

    def wait(request: FetchRequest, version: int) -> object:
        asked.set()
        return answer

    cluster[1].handlers[ApiKey.FETCH] = wait
    before = threading.enumerate()
    with client_of(cluster, request_timeout_s=60.0) as client:
        fetcher = client.fetcher(at(), 0, 7)
        iter(fetcher)
        assert asked.wait(PATIENCE_S)
        fetcher.close()
        fetcher.close()
        assert [one for one in begun_since(before) if one.name.startswith("fetch")] == []


def test_a_fetcher_leaves_its_link_for_the_next_one(cluster: FakeCluster) -> None:
    with client_of(cluster) as client:
        for _ in range(3):
            with client.fetcher(at(), 0, 7) as fetcher:
                assert len(list(fetcher)) == len(LOG)
        assert len(cluster[1]._connections) == 1


def test_a_range_is_read_once(cluster: FakeCluster) -> None:
    with client_of(cluster) as client, client.fetcher(at(), 0, 7) as fetcher:
        list(fetcher)
        with pytest.raises(ClientError, match="is already being read"):
            iter(fetcher)


def test_a_topic_that_is_gone_is_told_at_last(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.client.wire.fetch_call.ABSENCE_S_MAX", 0.1)
    with (
        client_of(cluster) as client,
        client.fetcher(at(0, "nope"), 0, 7) as fetcher,
        pytest.raises(UnknownTopic, match="Topic nope does not exist"),
    ):
        list(fetcher)


def test_a_broker_that_is_back_after_long_may_not_know_everything_at_once(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time in which nobody answered does not count against what it says first."""
    monkeypatch.setattr("penstock.client.wire.patience.PAUSE_S_MAX", 0.05)
    monkeypatch.setattr("penstock.client.wire.fetch_call.ABSENCE_S_MAX", 1.0)
    monkeypatch.setattr("penstock.client.wire.fetching.SHORT_LOG_S_MAX", 1.0)
    back_at = time.monotonic() + 1.6
    first_words = [fetched(code=3), fetched(high_watermark=0)]

    def restarting(request: FetchRequest, version: int) -> object:
        if time.monotonic() < back_at:
            return HANG_UP
        return first_words.pop(0) if first_words else serve(request, version)

    cluster[1].handlers[ApiKey.FETCH] = restarting
    assert read(cluster, 0, 7) == LOG


def test_a_log_that_stays_too_short_is_given_up_before_an_outage_would_be(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.client.wire.fetching.SHORT_LOG_S_MAX", 0.2)
    with pytest.raises(GaveUp, match=r"after 0.2 s.*the log ends at 7"):
        read(cluster, 0, 8, retry_timeout_s=60.0)


def test_a_peek_sees_one_header(cluster: FakeCluster) -> None:
    with client_of(cluster) as client:
        header = client.peek(at(), 3)
        assert header is not None
        assert (header.base_offset, header.record_count) == (5, 1)
        assert client.peek(at(), 7) is None
        assert client.peek(at(), 8) is None
