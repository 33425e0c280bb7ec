"""When a flow whose query has died is started again: after pauses that grow, and not endlessly."""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from penstock.pipelines.running.run_record import Rest, now_ms
from penstock.pipelines.specification.model import Restart


@dataclass(frozen=True, slots=True, kw_only=True)
class _Resting:
    until: float
    note: Rest


class Restarts:
    """Of all flows of a run. Whether a failure may pass at all is for others to say."""

    def __init__(self, policy: Restart, clock: Callable[[], float] = time.monotonic) -> None:
        self._policy = policy
        self._clock = clock
        # In a row.
        self._attempts: Counter[str] = Counter()
        self._began: dict[str, float] = {}
        self._resting: dict[str, _Resting] = {}
        # In this run.
        self.total: Counter[str] = Counter()

    @property
    def resting(self) -> Mapping[str, Rest]:
        return {flow: one.note for flow, one in self._resting.items()}

    def began(self, flow: str) -> None:
        if self._resting.pop(flow, None) is not None:
            self.total[flow] += 1
        self._began[flow] = self._clock()

    def did_a_batch(self, flow: str) -> None:
        """A flow that has done something, for longer than it would have rested, is well again."""
        if self._clock() - self._began[flow] >= self._policy.pause_s_max:
            self._attempts[flow] = 0

    def may_rest(self, flow: str, reason: str) -> bool:
        """Whether the flow is started again; it rests from now on if so."""
        if self._attempts[flow] >= self._policy.attempts:
            return False
        self._attempts[flow] += 1
        pause_s = self._policy.pause_before(self._attempts[flow])
        note = Rest(
            attempt=self._attempts[flow],
            attempts=self._policy.attempts,
            reason=reason,
            again_ms=now_ms() + int(pause_s * 1000),
        )
        self._resting[flow] = _Resting(until=self._clock() + pause_s, note=note)
        return True

    def rested(self) -> str | None:
        """A flow whose rest is over: the one that has waited longest."""
        due = {flow: one.until for flow, one in self._resting.items()}
        first = min(due, key=lambda flow: due[flow], default=None)
        return first if first is not None and due[first] <= self._clock() else None

    def give_up(self) -> list[str]:
        """Those that rest are not started again: their names."""
        flows = list(self._resting)
        self._resting.clear()
        return flows
