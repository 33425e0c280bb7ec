"""Says what became of each record that a worker took: a line of text, or of JSON."""

import json
import signal
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from penstock.cli.work_process import Ended
    from penstock.client.wire.queue_leases import Lease


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """`outcome` is acked, released or rejected, once the broker has said so; lost if the lease was
    over before, and unknown if the broker's answer got lost."""

    outcome: str
    topic: str
    partition: int
    offset: int
    attempt: int
    # None if a signal ended the command.
    exit_code: int | None
    signal: str | None
    # Whether the worker ended the command because the time for it was over.
    cut_off: bool
    seconds: float
    detail: str

    @classmethod
    def of(cls, lease: "Lease", ended: "Ended", outcome: str, detail: str = "") -> Self:
        return cls(
            outcome=outcome,
            topic=lease.partition.topic,
            partition=lease.partition.partition,
            offset=lease.record.offset,
            attempt=lease.attempt,
            exit_code=ended.code if ended.code >= 0 else None,
            signal=_signal_name(-ended.code) if ended.code < 0 else None,
            cut_off=ended.is_cut_off,
            seconds=round(ended.seconds, 3),
            detail=detail,
        )

    def line(self) -> str:
        end = f"exit {self.exit_code}" if self.signal is None else self.signal
        cut_off = ", cut off" if self.cut_off else ""
        detail = f": {self.detail}" if self.detail else ""
        return (
            f"{self.topic}-{self.partition}@{self.offset} {self.outcome}"
            f" (attempt {self.attempt}, {end}{cut_off}, {self.seconds:.3g} s){detail}"
        )


class Report:
    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json

    def write(self, outcome: Outcome) -> None:
        if self._as_json:
            sys.stdout.write(json.dumps(asdict(outcome), ensure_ascii=False) + "\n")
            sys.stdout.flush()
        else:
            sys.stderr.write(outcome.line() + "\n")
            sys.stderr.flush()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
