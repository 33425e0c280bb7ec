"""Watches one replica and checks what is new there against the history of its group."""

from collections.abc import Callable

from penstock.model.errors import StorageDamaged
from penstock.raft.ready import Role
from penstock.replication.replica import Replica
from penstock.storage.log import NO_DOUBT, EntriesCut
from tests.sim.machine.bugs import EXPECTED
from tests.sim.replicas.history import History, Violation, require

# A leader's commits are checked as they come. A follower's, which are seldom news, are read back
# together.
FOLLOWER_ENTRIES = 8


def _maybe() -> bool:
    return True


class Observer:
    def __init__(
        self,
        replica: Replica,
        history: History,
        *,
        is_damaged: Callable[[], bool] = _maybe,
    ) -> None:
        self._replica = replica
        self._history = history
        # Whether the disk may hold what nobody wrote.
        self._is_damaged = is_damaged
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
            self.require_damage(replica.stopped_because)
            return
        replica.validate()
        entries_min = 1 if closely else FOLLOWER_ENTRIES
        if replica._node.role is Role.LEADER:
            history.on_leader(replica._node)
            entries_min = 1
        index = replica._applied_index
        if index >= self._checked_index + entries_min:
            try:
                history.on_applied(replica.id, replica._log, self._checked_index, index)
            except StorageDamaged as damage:
                # Anyone who needs what can't be read any more will notice as well.
                self.require_damage(damage)
                history.unread[replica.id] = index
                return
            except EntriesCut as cut:
                raise Violation(f"{replica.id} applied what it does not have: {cut}") from cut
            except OSError:
                # Nor can a disk be read that fails for a while.
                history.unread[replica.id] = index
                return
            # After a restart it may know of less that is committed than it did before.
            if index >= history.unread.get(replica.id, 0):
                history.unread.pop(replica.id, None)
            self._checked_index = index
            history.on_producers(replica)

    @property
    def begins_late(self) -> bool:
        """Whether the log begins later than anybody is known to have agreed to."""
        start = self._replica.log_start_offset
        return start > self._history.log_start and self._replica.stopped_because is None

    def require_agreed_start(self) -> None:
        if self.begins_late and not self._history.unread:
            raise Violation(
                f"the log of {self._replica.id} begins at {self._replica.log_start_offset}, and "
                f"nobody agreed to more than {self._history.log_start}"
            )

    def require_no_doubt(self) -> None:
        """Nor does it take away anything that was promised."""
        doubt = self._replica._log.doubt
        if doubt != NO_DOUBT and not self._is_damaged():
            raise Violation(f"{self._replica.id} takes its whole log for damaged: {doubt}")

    def require_damage(self, found: Exception) -> None:
        """A crash alone never looks like damage."""
        if isinstance(found, StorageDamaged) and not self._is_damaged():
            raise Violation(f"{self._replica.id} takes its whole disk for damaged: {found}")
