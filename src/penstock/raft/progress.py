"""How far one follower is, as its leader knows it, and how much more it may be sent.

    PROBE ----- an append was acknowledged -----> REPLICATE
      ^  <----- rejected, or unreachable ----------'
      |   \\
      |    `--- needs what the log no longer has --> SNAPSHOT
      `-------- acknowledged, or given up -----------'

While probing, one append at a time looks for where the logs agree; while replicating, appends
are sent ahead of their acknowledgements, within a window; during a snapshot nothing is sent.
"""

from collections import deque
from enum import Enum, auto

from penstock.model.ids import ReplicaId
from penstock.raft.settings import RaftSettings


class ProgressState(Enum):
    PROBE = auto()
    REPLICATE = auto()
    SNAPSHOT = auto()


# A name of its own, because it is looked up for every follower each time something is sent.
REPLICATE = ProgressState.REPLICATE


class Progress:
    __slots__ = (
        "_in_flight",
        "bytes_in_flight",
        "commit_known",
        "commit_sent",
        "match_index",
        "moved",
        "next_index",
        "probe_sent",
        "read_round",
        "recently_active",
        "replica",
        "snapshot_rounds",
        "state",
        "was_active",
    )

    def __init__(self, replica: ReplicaId, next_index: int) -> None:
        self.replica = replica
        # Durable there, and equal to the leader's log up to here.
        self.match_index = 0
        self.next_index = next_index
        self.state = ProgressState.PROBE
        self.probe_sent = False
        # Whether it was heard from in the present count of activity, and in the one before.
        self.recently_active = False
        self.was_active = False
        # Whether an acknowledgement arrived since the last heartbeat was answered.
        self.moved = False
        # The commit index it was told, and the one it said that it has.
        self.commit_sent = 0
        self.commit_known = 0
        self.read_round = 0
        self.snapshot_rounds = 0
        self._in_flight: deque[tuple[int, int]] = deque()
        self.bytes_in_flight = 0

    @property
    def is_active(self) -> bool:
        """Heard from within an election time-out, give or take one."""
        return self.recently_active or self.was_active

    @property
    def appends_in_flight(self) -> int:
        return len(self._in_flight)

    def may_send(self, settings: RaftSettings) -> bool:
        if self.state is REPLICATE:
            return (
                len(self._in_flight) < settings.appends_in_flight_max
                and self.bytes_in_flight < settings.bytes_in_flight_max
            )
        return self.state is ProgressState.PROBE and not self.probe_sent

    def sent(self, last_index: int, size_bytes: int) -> None:
        """An append that ends at `last_index` is on its way."""
        if self.state is ProgressState.PROBE:
            self.probe_sent = True
            return
        self.next_index = last_index + 1
        self._in_flight.append((last_index, size_bytes))
        self.bytes_in_flight += size_bytes

    def acknowledge(self, match_index: int) -> bool:
        """Notes an acknowledgement; says whether it brought anything new."""
        self.recently_active = True
        if match_index <= self.match_index:
            return False
        self.match_index = match_index
        self.moved = True
        self.next_index = max(self.next_index, match_index + 1)
        in_flight = self._in_flight
        while in_flight and in_flight[0][0] <= match_index:
            self.bytes_in_flight -= in_flight.popleft()[1]
        return True

    def reject(self, previous_index: int, agreed_index: int) -> bool:
        """Backs up to just after `agreed_index`; False if the rejection is out of date."""
        self.recently_active = True
        if self.state is ProgressState.PROBE:
            if previous_index != self.next_index - 1:
                return False
            # A follower whose disk lost something has less than it said before. How much is not
            # known until a probe finds it out: where the logs may agree is no proof that they do.
            if agreed_index < self.match_index:
                self.match_index = 0
        elif self.state is ProgressState.SNAPSHOT or previous_index <= self.match_index:
            return False
        self.probe()
        self.next_index = max(min(previous_index, agreed_index + 1), self.match_index + 1)
        return True

    def probe(self) -> None:
        self._enter(ProgressState.PROBE)

    def replicate(self) -> None:
        self._enter(ProgressState.REPLICATE)

    def await_snapshot(self) -> None:
        self._enter(ProgressState.SNAPSHOT)

    def _enter(self, state: ProgressState) -> None:
        self.state = state
        self.next_index = self.match_index + 1
        self.probe_sent = False
        self.snapshot_rounds = 0
        self.commit_sent = min(self.commit_sent, self.match_index)
        self._in_flight.clear()
        self.bytes_in_flight = 0
