"""The members of one group, and what is counted over them so that no event has to walk them all."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from penstock.groups.commands import MemberProtocol
from penstock.groups.effects import Ticket
from penstock.groups.records import MemberMetadata
from penstock.model.ids import MemberId


@dataclass(slots=True, kw_only=True)
class Member:
    member_id: MemberId
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[MemberProtocol, ...]
    assignment: bytes = b""
    # Of a member that was behind when its group became a classic one: until it joins, it may go on
    # in the epoch that it has.
    own_generation: int | None = None
    # Until its first join is answered: such a member does not know its id and can't heartbeat.
    is_new: bool = False
    join_ticket: Ticket | None = None
    sync_ticket: Ticket | None = None

    @property
    def is_excused(self) -> bool:
        """Whether it need not heartbeat now, since it waits for us."""
        return not self.is_new and (self.join_ticket is not None or self.sync_ticket is not None)

    def metadata(self, protocol: str | None) -> bytes:
        return next((data for name, data in self.protocols if name == protocol), b"")

    def vote(self, candidates: set[str]) -> str:
        return next(name for name, _ in self.protocols if name in candidates)

    def stored(self, protocol: str | None, assignment: bytes) -> MemberMetadata:
        return MemberMetadata(
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.session_timeout_ms,
            subscription=self.metadata(protocol),
            assignment=assignment,
        )


class Members:
    """Members in the order of their joining, static ones also by instance id, and the leader."""

    def __init__(self) -> None:
        self.leader: MemberId | None = None
        # Ids that were handed out to clients which are to join again with them (KIP-394).
        self.pending: set[MemberId] = set()
        # Members of this generation that have not asked for their assignment yet.
        self.unsynced: set[MemberId] = set()
        self._by_id: dict[MemberId, Member] = {}
        self._by_instance: dict[str, MemberId] = {}
        self._supporters: dict[str, int] = {}
        self._joining = 0

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._by_id.values())

    def __contains__(self, member_id: MemberId) -> bool:
        return member_id in self._by_id

    def __getitem__(self, member_id: MemberId) -> Member:
        return self._by_id[member_id]

    def get(self, member_id: MemberId) -> Member | None:
        return self._by_id.get(member_id)

    def ids(self) -> Iterable[MemberId]:
        return self._by_id.keys()

    def static_id(self, instance_id: str) -> MemberId | None:
        return self._by_instance.get(instance_id)

    @property
    def joining(self) -> int:
        """How many wait for the answer to their join."""
        return self._joining

    @property
    def all_joined(self) -> bool:
        return self._joining == len(self._by_id) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self), default=0)

    def add(self, member: Member) -> None:
        assert member.member_id not in self._by_id
        if member.instance_id is not None:
            assert member.instance_id not in self._by_instance
            self._by_instance[member.instance_id] = member.member_id
        self._by_id[member.member_id] = member
        self._count_protocols(member, 1)
        self._joining += member.join_ticket is not None
        self.pending.discard(member.member_id)
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member: Member) -> None:
        """The caller has answered whatever it waited for."""
        assert member.join_ticket is None
        del self._by_id[member.member_id]
        if member.instance_id is not None:
            del self._by_instance[member.instance_id]
        self._count_protocols(member, -1)
        self.unsynced.discard(member.member_id)
        if self.leader == member.member_id:
            self.leader = next(iter(self._by_id), None)

    def rename(self, member: Member, member_id: MemberId) -> None:
        """A static member goes on under a new id, in everything the old one was."""
        assert member.instance_id is not None
        del self._by_id[member.member_id]
        if member.member_id in self.unsynced:
            self.unsynced.remove(member.member_id)
            self.unsynced.add(member_id)
        if self.leader == member.member_id:
            self.leader = member_id
        member.member_id = member_id
        self._by_id[member_id] = member
        self._by_instance[member.instance_id] = member_id

    def set_protocols(self, member: Member, protocols: tuple[MemberProtocol, ...]) -> None:
        self._count_protocols(member, -1)
        member.protocols = protocols
        self._count_protocols(member, 1)

    def park_join(self, member: Member, ticket: Ticket) -> None:
        assert member.join_ticket is None
        member.join_ticket = ticket
        self._joining += 1

    def take_join(self, member: Member) -> Ticket | None:
        ticket, member.join_ticket = member.join_ticket, None
        self._joining -= ticket is not None
        return ticket

    def support_any(self, names: Iterable[str]) -> bool:
        """Whether one of these protocols is supported by every member."""
        return any(self._supporters.get(name, 0) == len(self._by_id) for name in names)

    def select_protocol(self) -> str:
        """Each member votes for the first of its protocols that all support; the earliest vote
        decides a tie."""
        candidates = {name for name, count in self._supporters.items() if count == len(self._by_id)}
        votes: dict[str, int] = {}
        for member in self:
            choice = member.vote(candidates)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=lambda name: votes[name])

    def elect_joined_leader(self) -> bool:
        """The leader stays when it is back, else the first that is; False when nobody is."""
        if self.leader is None:
            return False
        if self._by_id[self.leader].join_ticket is not None:
            return True
        joined = (member.member_id for member in self if member.join_ticket is not None)
        leader = next(joined, None)
        if leader is None:
            return False
        self.leader = leader
        return True

    def validate(self) -> None:
        """Asserts that what is counted over the members follows from them."""
        ids = self._by_id.keys()
        assert all(member_id == member.member_id for member_id, member in self._by_id.items())
        assert (self.leader in ids) if ids else self.leader is None
        assert ids >= self.unsynced
        assert not ids & self.pending
        static = [member for member in self if member.instance_id is not None]
        assert self._by_instance == {member.instance_id: member.member_id for member in static}
        assert self._joining == sum(member.join_ticket is not None for member in self)
        supporters = Counter(name for member in self for name, _ in member.protocols)
        assert self._supporters == supporters

    def _count_protocols(self, member: Member, change: int) -> None:
        for name, _ in member.protocols:
            count = self._supporters.get(name, 0) + change
            if count:
                self._supporters[name] = count
            else:
                del self._supporters[name]
