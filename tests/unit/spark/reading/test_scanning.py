"""What a task makes of raw batches: control records, gaps, ranges inside batches, and losses."""

from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

import pytest

from penstock.client.wire.errors import OffsetOutOfRange, UnknownTopic
from penstock.client.wire.fetching import Fetched
from penstock.records.batch import build_batch
from penstock.records.record import Record
from penstock.spark.reading import scanning
from penstock.spark.reading.data_loss import DataLost
from penstock.spark.reading.scanning import scan
from penstock.spark.reading.topic_range import TopicRange
from tests.unit.spark.reading.fake_cluster import options


class FakeFetcher:
    def __init__(self, answers: list[Any]) -> None:
        self._answers = answers

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    def __iter__(self) -> Iterator[Fetched]:
        for answer in self._answers:
            if isinstance(answer, Exception):
                raise answer
            yield Fetched(memoryview(answer), ())


class FakeCluster:
    """Hands out one list of answers for each fetcher, and remembers where they began."""

    def __init__(self, *fetches: list[Any]) -> None:
        self.fetches = list(fetches)
        self.begins: list[int] = []
        self.is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.is_closed = True

    def fetcher(self, partition: object, start: int, stop: int) -> FakeFetcher:
        self.begins.append(start)
        return FakeFetcher(self.fetches.pop(0))


def run(
    monkeypatch: pytest.MonkeyPatch, cluster: FakeCluster, wanted: TopicRange, **given: Any
) -> list[int]:
    monkeypatch.setattr(scanning, "WireCluster", lambda _: cluster)
    batches = list(scan(wanted, options(subscribe="a", columns="offset,value", **given)))
    assert cluster.is_closed
    return [offset for batch in batches for offset in batch.column(0).to_pylist()]


def batch(*values: bytes, at: int) -> bytes:
    records = [Record(key=None, value=value, offset=at + n) for n, value in enumerate(values)]
    return build_batch(records, base_offset=at)


def lost(offset: int, log_start: int, log_end: int) -> OffsetOutOfRange:
    return OffsetOutOfRange(TopicRange("a", 0, 0, 0).place, offset, log_start, log_end)


def test_only_the_range_is_read_with_gaps_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster([batch(b"0", b"1", b"2", at=0), batch(b"7", b"8", b"9", at=7)])
    assert run(monkeypatch, cluster, TopicRange("a", 0, 1, 9)) == [1, 2, 7, 8]


def test_control_records_are_no_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    marker = build_batch([Record(key=b"\0\0\0\1", value=b"")], base_offset=1, is_control=True)
    cluster = FakeCluster([batch(b"0", at=0) + marker, batch(b"2", at=2)])
    assert run(monkeypatch, cluster, TopicRange("a", 0, 0, 3)) == [0, 2]


def test_a_loss_ends_the_task_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster([batch(b"0", at=0), lost(1, 4, 9)])
    with pytest.raises(DataLost, match="from offset 1 up to 4 were deleted before they were read"):
        run(monkeypatch, cluster, TopicRange("a", 0, 0, 9))


def test_a_loss_that_is_allowed_is_jumped_over(monkeypatch: pytest.MonkeyPatch) -> None:
    later = batch(b"2", b"3", b"4", b"5", at=2)
    cluster = FakeCluster([batch(b"0", at=0), lost(1, 4, 9)], [later])
    found = run(monkeypatch, cluster, TopicRange("a", 0, 0, 6), failOnDataLoss="false")
    assert found == [0, 4, 5], "what was deleted is not read, even if its batch is still there"
    assert cluster.begins == [0, 4]


def test_a_range_that_is_gone_altogether_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = FakeCluster([lost(1, 40, 90)])
    assert run(monkeypatch, gone, TopicRange("a", 0, 1, 6), failOnDataLoss="false") == []
    again = FakeCluster([lost(10, 0, 5)])
    assert run(monkeypatch, again, TopicRange("a", 0, 10, 16), failOnDataLoss="false") == []
    with pytest.raises(DataLost, match="ends at offset 5, before offset 10"):
        run(monkeypatch, FakeCluster([lost(10, 0, 5)]), TopicRange("a", 0, 10, 16))


def test_a_deleted_topic_ends_the_task_or_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = UnknownTopic("Topic a does not exist.")
    with pytest.raises(UnknownTopic):
        run(monkeypatch, FakeCluster([gone]), TopicRange("a", 0, 0, 5))
    found = run(
        monkeypatch, FakeCluster([batch(b"0", at=0), gone]), TopicRange("a", 0, 0, 5),
        failOnDataLoss="false",
    )  # fmt: skip
    assert found == [0]
