"""Watches one replica and checks what is new there against the history of its group."""

from penstock.model.errors import StorageDamaged
from penstock.raft.ready import Role
from penstock.replication.replica import Replica
from tests.sim.machine.bugs import EXPECTED
from tests.sim.replicas.history import History, require

# A leader's commits are checked as they come. A follower's, which are seldom news, are read back
# together.
FOLLOWER_ENTRIES = 8


class Observer:
    def __init__(self, replica: Replica, history: History) -> None:
        self._replica = replica
        self._history = history
        self._checked_index = 0

    def look(self, *, closely: bool = False) -> None:
        replica, history = self._replica, self._history
        if history.is_over:
            return
        if replica.stopped_because is not None:
            require(
                isinstance(replica.stopped_because, EXPECTED),
                f"{replica.id} was stopped by a bug: {replica.stopped_because!r}",
            )
            return
        entries_min = 1 if closely else FOLLOWER_ENTRIES
        if replica._node.role is Role.LEADER:
            history.on_leader(replica._node)
            entries_min = 1
        index = replica._applied_index
        if index >= self._checked_index + entries_min:
            try:
                history.on_applied(replica.id, replica._log, self._checked_index, index)
            except StorageDamaged:
                # Whoever needs what can't be read any more will notice as well.
                return
            self._checked_index = index
            history.on_producers(replica)
