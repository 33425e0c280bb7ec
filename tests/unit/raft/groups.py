"""A group of cores in one process whose network and disks the test moves by hand."""

from collections.abc import Callable, Iterable

from penstock.model.ids import NO_END, BrokerId, DirectoryId, LogEnd, LogIndex, ReplicaId, Term
from penstock.raft.entries import Entry, EntryKind, HardState
from penstock.raft.log_view import membership_steps
from penstock.raft.membership import Membership, MembershipStep
from penstock.raft.messages import Message
from penstock.raft.node import RaftNode
from penstock.raft.ready import ReadState, Ready, Role, Write
from penstock.raft.settings import RaftSettings
from tests.unit.raft.memory_log import MemoryLog


def rid(number: int, directory: str = "a") -> ReplicaId:
    return ReplicaId(BrokerId(number), DirectoryId(directory))


def members(*numbers: int, learners: Iterable[int] = ()) -> Membership:
    return Membership(frozenset(map(rid, numbers)), frozenset(map(rid, learners)))


def entry(index: int, term: int, payload: object = None, size_bytes: int = 1) -> Entry:
    return Entry(LogIndex(index), Term(term), EntryKind.DATA, payload, size_bytes)


def entries(*terms: int) -> list[Entry]:
    """A log with these terms at indices 1, 2, ..."""
    return [entry(index, term, f"{term}.{index}") for index, term in enumerate(terms, start=1)]


class Member:
    """A core, its disk, and what it asked for and has not been given yet."""

    def __init__(
        self,
        number: int,
        membership: Membership,
        settings: RaftSettings | None = None,
        *,
        log: MemoryLog | None = None,
        term: int = 0,
        vote: int | None = None,
        directory: str = "a",
        lost_end: LogEnd = NO_END,
        accepted_end: LogEnd = NO_END,
    ) -> None:
        self.lost_end = lost_end
        self.accepted_end = accepted_end
        self.id = rid(number, directory)
        self.membership = membership
        self.settings = settings or RaftSettings()
        self.log = log or MemoryLog()
        if term:
            self.log.hard_state = HardState(Term(term), None if vote is None else rid(vote))
        # With False, writes wait in `writes` until the test calls `sync`.
        self.syncs_at_once = True
        self.restart()

    def restart(self) -> None:
        base = MembershipStep(LogIndex(0), self.membership)
        if self.log.snapshot is not None:
            base = MembershipStep(self.log.snapshot.index, self.log.snapshot.membership)
        self.writes: list[Write] = []
        self.sent: list[Message] = []
        self.reads: list[ReadState] = []
        self.reads_refused: list[object] = []
        self.snapshots_wanted: list[ReplicaId] = []
        # Replicas that it has no room for on the way to them.
        self.full: set[ReplicaId] = set()
        self.node = RaftNode(
            replica=self.id,
            settings=self.settings,
            log=self.log,
            hard_state=self.log.hard_state,
            memberships=membership_steps(self.log, base),
            random_below=lambda _: 0,
            commit_index=base.index,
            has_room=lambda replica: replica not in self.full,
            lost_end=self.lost_end,
            accepted_end=self.accepted_end,
        )

    def settle(self) -> None:
        while (ready := self.node.ready()) is not None:
            self._keep(ready)
            if self.syncs_at_once:
                self.sync()

    def _keep(self, ready: Ready) -> None:
        self.sent += ready.messages
        self.reads += ready.reads
        self.reads_refused += ready.reads_refused
        self.snapshots_wanted += ready.snapshots_wanted
        if ready.write is not None:
            self.writes.append(ready.write)

    def sync(self) -> None:
        """Everything handed to the disk so far is durable."""
        if self.writes:
            for write in self.writes:
                self.log.carry_out(write)
            number = self.writes[-1].number
            self.writes.clear()
            self.node.persisted(number)

    def step(self, message: Message) -> list[Message]:
        """Takes a message; gives what it sends in answer."""
        self.node.step(message)
        return self.take()

    def take(self) -> list[Message]:
        self.settle()
        taken, self.sent = self.sent, []
        return taken

    def tick(self, times: int = 1) -> None:
        for _ in range(times):
            self.node.tick()
            self.settle()

    @property
    def terms(self) -> list[int]:
        return [item.term for item in self.log.items]


class Group:
    """Members and the wire between them; `deliver` runs until nothing is left to say."""

    def __init__(self, *all_members: Member) -> None:
        self.members = {member.id: member for member in all_members}
        self.cut: set[ReplicaId] = set()
        self.accepts: Callable[[Message], bool] = lambda _: True

    @classmethod
    def of(cls, size: int, settings: RaftSettings | None = None, learners: int = 0) -> "Group":
        voters = range(1, size + 1)
        membership = members(*voters, learners=range(size + 1, size + learners + 1))
        return cls(
            *(Member(number, membership, settings) for number in range(1, size + learners + 1))
        )

    def __getitem__(self, number: int) -> Member:
        return self.members[rid(number)]

    def deliver(self) -> None:
        while messages := [
            message for member in self.members.values() for message in member.take()
        ]:
            for message in messages:
                self._hand_over(message)

    def _hand_over(self, message: Message) -> None:
        target = self.members.get(message.to)
        if target is None or message.sender in self.cut or message.to in self.cut:
            return
        if self.accepts(message):
            target.node.step(message)

    def elect(self, number: int) -> Member:
        self[number].node.campaign()
        self.deliver()
        assert self[number].node.role is Role.LEADER
        return self[number]

    def tick(self, times: int = 1) -> None:
        for _ in range(times):
            for member in self.members.values():
                if member.id not in self.cut:
                    member.node.tick()
            self.deliver()
