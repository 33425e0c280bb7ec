"""Who owns which partition and who read which record: the history that group tests check."""

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable


class Ledger:
    """Members report to it from their threads; tests wait on it and judge the history."""

    def __init__(self, partitions: int) -> None:
        self._all = frozenset(range(partitions))
        self._changed = threading.Condition()
        self._owner: dict[int, str] = {}
        self._members: set[str] = set()
        self.assignments: Counter[str] = Counter()
        self.read_by: dict[str, int] = defaultdict(int)
        self.offsets: dict[int, list[int]] = defaultdict(list)
        self.commits: Counter[str] = Counter()
        self._uncommitted: set[str] = set()
        self._left: set[str] = set()
        self.violations: list[str] = []

    def joins(self, member: str) -> None:
        """Comes first, also of a member whose name another one had before."""
        with self._changed:
            self._left.discard(member)

    def assigned(self, member: str, partitions: Iterable[int]) -> None:
        """The ones given are added to what the member has, as in both rebalance protocols."""
        with self._changed:
            # A client may be told of its last assignment while it leaves.
            if member not in self._left:
                self._members.add(member)
            self.assignments[member] += 1
            for partition in partitions:
                owner = self._owner.setdefault(partition, member)
                if owner != member:
                    self.violations.append(f"{partition} of {owner} was given to {member} too")
                    self._owner[partition] = member
            self._changed.notify_all()

    def revoked(self, member: str, partitions: Iterable[int]) -> None:
        with self._changed:
            for partition in partitions:
                if self._owner.get(partition) == member:
                    del self._owner[partition]
            self._changed.notify_all()

    def left(self, member: str) -> None:
        """The member stops reading and will leave; called before it tells the broker."""
        self.revoked(member, self.owned_by(member))
        with self._changed:
            self._members.discard(member)
            self._left.add(member)

    def read(self, member: str, partition: int, offset: int) -> None:
        with self._changed:
            self.read_by[member] += 1
            self._uncommitted.add(member)
            self.offsets[partition].append(offset)
            if self._owner.get(partition) != member:
                self.violations.append(f"{member} read {partition}@{offset} without owning it")
            self._changed.notify_all()

    def committed(self, member: str) -> None:
        """All that the member has read."""
        with self._changed:
            self.commits[member] += 1
            self._uncommitted.discard(member)
            self._changed.notify_all()

    def is_committed(self) -> bool:
        """Whether a commit was answered for all that was read."""
        return not self._uncommitted

    def failed(self, member: str, error: BaseException) -> None:
        with self._changed:
            self.violations.append(f"{member} failed: {error!r}")
            self._changed.notify_all()

    def owned_by(self, member: str) -> set[int]:
        with self._changed:
            return {partition for partition, owner in self._owner.items() if owner == member}

    def is_balanced(self) -> bool:
        """Every partition has an owner, and no member has two more than another."""
        shares = Counter(self._owner.values())
        counts = [shares[member] for member in self._members]
        return set(self._owner) == self._all and max(counts) - min(counts) <= 1

    def record_count(self) -> int:
        return sum(len(offsets) for offsets in self.offsets.values())

    def wait_until(self, what: str, condition: Callable[[], bool], timeout_s: float = 60) -> None:
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while not condition():
                left = deadline - time.monotonic()
                assert left > 0, f"{what} did not happen; owners {self._owner}, {self.violations}"
                self._changed.wait(left)

    def wait_until_balanced(self, members: int) -> None:
        self.wait_until(
            f"balance between {members} members",
            lambda: len(self._members) == members and self.is_balanced(),
        )
