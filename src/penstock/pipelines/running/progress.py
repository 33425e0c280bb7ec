"""What is kept of each finished micro-batch, made of Spark's own progress and the sink's account.

The lines of `progress.jsonl` are the product's own format, for `penstock pipeline status` and for
later tools: rates, lag per partition, batch time, state, watermark, broken rules, dead letters.
"""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from penstock.pipelines.sinks.sink import Written
from penstock.spark.reading.stream_progress import positions

RULES = "rules."
DECODING, UNDECODABLE = "decoding.", "undecodable"
# Before any row was seen the watermark is at the beginning of time.
NO_WATERMARK = "1970-01-01T00:00:00.000Z"
SIZE_MAX = 4 * 1024 * 1024
TAIL_SIZE = 256 * 1024

Json = Mapping[str, Any]
RuleCounts = Mapping[str, Mapping[str, int]]
"""Rows that broke a rule, by dataset and rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Since the checkpoint began, over all runs."""

    rows_in: int = 0
    rows_out: int = 0
    late_rows: int = 0
    dead_letters: int = 0
    rules: RuleCounts = field(default_factory=dict)

    @property
    def broken_rules(self) -> int:
        return count_of(self.rules)

    def plus(self, batch: "BatchProgress") -> "Totals":
        return Totals(
            rows_in=self.rows_in + batch.rows_in,
            rows_out=self.rows_out + (batch.rows_out or 0),
            late_rows=self.late_rows + batch.late_rows,
            dead_letters=self.dead_letters + batch.dead_letters,
            rules=plus(self.rules, batch.rules),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchProgress:
    """One finished micro-batch of a flow."""

    at_ms: int
    """When the batch began, since 1970."""
    query: str
    batch: int
    rows_in: int
    rows_out: int | None = None
    """None where the sink can't know."""
    files: int = 0
    size: int = 0
    was_there: bool = False
    """The sink had the batch already, from before a crash."""
    rows_in_per_second: float = 0.0
    rows_done_per_second: float = 0.0
    batch_ms: int
    durations_ms: Mapping[str, int] = field(default_factory=dict)
    """By what Spark calls the parts of a batch."""
    lag: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Records that were not read yet, by topic and partition."""
    ends: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """First offset that was not read, by topic and partition."""
    state_rows: int = 0
    state_bytes: int = 0
    late_rows: int = 0
    """Dropped, because they came after the watermark."""
    watermark: str | None = None
    rules: RuleCounts = field(default_factory=dict)
    dead_letters: int = 0
    """Records that could not be decoded; they go to `<source>_undecodable`."""
    total: Totals = Totals()

    @property
    def lag_total(self) -> int:
        return sum(sum(partitions.values()) for partitions in self.lag.values())

    @property
    def broken_rules(self) -> int:
        return count_of(self.rules)

    @property
    def rate(self) -> float:
        """Rows per second; Spark has no time before the first batch to divide by."""
        return self.rows_in_per_second or self.rows_done_per_second

    @property
    def ended_ms(self) -> int:
        return self.at_ms + self.batch_ms


def batch_progress(spark: Json, written: Written | None) -> BatchProgress:
    """From Spark's JSON of one batch; `written` is None if the sink's account got lost."""
    written = written or Written()
    lag, ends = positions(spark.get("sources", ()))
    operators = spark.get("stateOperators", ())
    observed = spark.get("observedMetrics") or {}
    return BatchProgress(
        at_ms=_milliseconds(spark["timestamp"]),
        query=spark["id"],
        batch=spark["batchId"],
        rows_in=spark.get("numInputRows", 0),
        rows_out=written.rows,
        files=written.files,
        size=written.size,
        was_there=written.was_there,
        rows_in_per_second=_number(spark.get("inputRowsPerSecond")),
        rows_done_per_second=_number(spark.get("processedRowsPerSecond")),
        batch_ms=spark.get("batchDuration", 0),
        durations_ms=dict(spark.get("durationMs") or {}),
        lag=lag,
        ends=ends,
        state_rows=sum(operator.get("numRowsTotal", 0) for operator in operators),
        state_bytes=sum(operator.get("memoryUsedBytes", 0) for operator in operators),
        late_rows=sum(operator.get("numRowsDroppedByWatermark", 0) for operator in operators),
        watermark=_watermark(spark.get("eventTime") or {}),
        rules=_rules(observed),
        dead_letters=_dead_letters(observed),
    )


def plus(some: RuleCounts, more: RuleCounts) -> RuleCounts:
    sums = {dataset: dict(counts) for dataset, counts in some.items()}
    for dataset, counts in more.items():
        into = sums.setdefault(dataset, {})
        for rule, count in counts.items():
            into[rule] = into.get(rule, 0) + count
    return sums


def count_of(rules: RuleCounts) -> int:
    """How often a rule was broken, whichever."""
    return sum(sum(counts.values()) for counts in rules.values())


def with_lag_from(batch: BatchProgress, before: BatchProgress | None) -> BatchProgress:
    """The batch with at least the lag that follows from what was known before it.

    A batch that was planned in an earlier run is read without a look at the ends of the topics.
    """
    if batch.lag or not batch.ends or before is None:
        return batch
    lag = {
        topic: {
            index: max(0, before.ends.get(topic, {}).get(index, 0) + behind - ends.get(index, 0))
            for index, behind in before.lag.get(topic, {}).items()
        }
        for topic, ends in batch.ends.items()
    }
    return replace(batch, lag=lag)


def to_line(progress: BatchProgress) -> str:
    return json.dumps(asdict(progress), separators=(",", ":"))


def from_line(line: str) -> BatchProgress:
    content = json.loads(line)
    return BatchProgress(**(content | {"total": Totals(**content["total"])}))


def is_idle(durations_ms: Mapping[str, int]) -> bool:
    """Whether Spark only looked for something new, and speaks of the batch that is yet to come.

    It does so at the end of a run to the end of its sources that found nothing.
    """
    return "triggerExecution" in durations_ms and "addBatch" not in durations_ms


class ProgressLog:
    """`progress.jsonl`: grows to a limit, then becomes `progress.1.jsonl` and starts again."""

    def __init__(self, path: Path, size_max: int = SIZE_MAX) -> None:
        self._path = path
        self._size_max = size_max

    @property
    def before(self) -> Path:
        return self._path.with_name(f"{self._path.stem}.1{self._path.suffix}")

    def append(self, progress: BatchProgress) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if self._path.exists() and self._path.stat().st_size > self._size_max:
            self._path.replace(self.before)
        with self._path.open("a+b", buffering=0) as file:
            end = file.seek(0, 2)
            line = to_line(progress).encode() + b"\n"
            if end and os.pread(file.fileno(), 1, end - 1) != b"\n":
                # The machine went down within a line, which must not spoil this one.
                line = b"\n" + line
            try:
                while line:
                    line = line[file.write(line) :]
            except OSError:
                file.truncate(end)
                raise

    def last(self, count: int = 1) -> list[BatchProgress]:
        """The latest ones, oldest first."""
        found = _tail(self._path, count)
        if len(found) < count:
            found = _tail(self.before, count - len(found)) + found
        return found

    def remove(self) -> None:
        for path in (self._path, self.before):
            path.unlink(missing_ok=True)


def _tail(path: Path, count: int) -> list[BatchProgress]:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - TAIL_SIZE))
            lines = file.read().split(b"\n")
    except FileNotFoundError:
        return []
    if size > TAIL_SIZE:
        lines = lines[1:]
    # What is being written, or was when the machine went down, is not a whole line.
    found: list[BatchProgress] = []
    for line in reversed(lines[:-1]):
        if len(found) == count:
            break
        with suppress(ValueError, KeyError, TypeError):
            batch = from_line(line.decode())
            if not is_idle(batch.durations_ms):
                found.append(batch)
    return found[::-1]


def _rules(observed: Json) -> dict[str, dict[str, int]]:
    return {
        name.removeprefix(RULES): {rule: int(count or 0) for rule, count in counts.items()}
        for name, counts in observed.items()
        if name.startswith(RULES)
    }


def _dead_letters(observed: Json) -> int:
    return sum(
        int(counts.get(UNDECODABLE) or 0)
        for name, counts in observed.items()
        if name.startswith(DECODING)
    )


def _watermark(times: Json) -> str | None:
    watermark = times.get("watermark")
    return None if watermark == NO_WATERMARK else watermark


def _milliseconds(timestamp: str) -> int:
    return int(datetime.fromisoformat(timestamp).astimezone(UTC).timestamp() * 1000)


def _number(value: Any) -> float:
    """Spark leaves out what it can't compute, and JSON has no infinity."""
    return float(value) if isinstance(value, int | float) else 0.0
