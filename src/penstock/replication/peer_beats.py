"""What both ends of one connection know of each other's groups, and how they tell it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from struct import Struct
from typing import Final, NamedTuple

from penstock.model.ids import ReplicaId, Term
from penstock.replication.group_replica import GroupReplica
from penstock.replication.peer_frames import KEY_SIZE, FrameReader, FrameWriter
from penstock.replication.peer_link import PeerLink

LEADS: Final = 32
LOST: Final = 33
BEAT: Final = 34
ANSWER: Final = 35
# An idle group has its turn in one of this many ticks: often enough within any election time-out.
IDLE_TURNS: Final = 4
# After an append every answer counts for so long: the leader needs two to see that one was lost.
ACTIVE_TICKS: Final = 3
_IN_SYNC_MAX: Final = 255

_BEAT: Final = Struct(">BQ")
NUMBER: Final = Struct(">Q")
_COUNT: Final = Struct(">I")
_LEADS_HEAD: Final = Struct(">BBI")
_LEADERSHIP: Final = Struct(">20sQB")
_TERM_AND_COUNT: Final = Struct(">QB")
_NODE: Final = Struct(">i")
_GROUP: Final = Struct(">20sQ")


class Led:
    """A group that this node leads."""

    __slots__ = ("in_sync", "replica", "term")

    def __init__(self, replica: GroupReplica) -> None:
        self.replica = replica
        self.term = replica.term
        self.in_sync = tuple(replica.in_sync())

    def differs_from(self, other: "Led | None") -> bool:
        return other is None or self.term != other.term or self.in_sync != other.in_sync


class Followed(NamedTuple):
    """A group that the other node leads and that this node has a replica of."""

    replica: GroupReplica
    term: Term


Acknowledge = tuple[Callable[[ReplicaId, Term], object], Term]


class Turns:
    """Goes round the keys of a dictionary, a share of them at a time."""

    __slots__ = ("_left", "_rounds", "_share")

    def __init__(self, rounds: int = IDLE_TURNS) -> None:
        """`rounds` is how many shares there are."""
        self._rounds = rounds
        self._left: list[bytes] = []
        self._share = 0

    def take(self, keys: Mapping[bytes, object]) -> list[bytes]:
        """Some of them may be gone by now."""
        if not self._left:
            self._left = list(keys)
            # Of the round, not of what is there by now: however many keys go meanwhile, those that
            # stay have their next turn as soon as ever.
            self._share = -(-len(keys) // self._rounds)
        taken = self._left[-self._share :]
        del self._left[len(self._left) - len(taken) :]
        return taken


class PeerBeats:
    """What both ends of one connection know of each other's groups."""

    __slots__ = (
        "_acknowledge_turns",
        "accepted_by_peer",
        "active",
        "followed",
        "has_heard",
        "led_by_peer",
        "link",
        "received",
        "rest_turns",
        "resting",
        "sent",
    )

    def __init__(self, link: PeerLink) -> None:
        self.link = link
        # The numbers of the last beats.
        self.sent = 0
        self.received = 0
        # Whether anything arrived since the last tick. A beat may wait behind large appends; that
        # these arrive says as much.
        self.has_heard = False
        # The groups that the other node leads. Of those that are here too, some accepted it and
        # rest; the others are asked at every tick.
        self.led_by_peer: dict[bytes, Term] = {}
        self.followed: dict[bytes, Followed] = {}
        self.resting: dict[bytes, Followed] = {}
        self.rest_turns = Turns()
        # The groups of ours whose replica there accepted us: what an answer counts for.
        self.accepted_by_peer: dict[bytes, Acknowledge] = {}
        self._acknowledge_turns = Turns()
        # Those whose leader waits for an answer, and for how many more ticks.
        self.active: dict[bytes, int] = {}

    def forget(self, name: bytes) -> None:
        """The other node no longer leads the group, or it is no longer here."""
        self.followed.pop(name, None)
        self.resting.pop(name, None)

    def wake(self, name: bytes) -> None:
        followed = self.resting.pop(name, None)
        if followed is not None:
            self.followed[name] = followed

    def accept(self, name: bytes, replica: GroupReplica, term: Term) -> None:
        self.accepted_by_peer[name] = (replica.heartbeat_acknowledged, term)
        self.active[name] = ACTIVE_TICKS

    def refuse(self, name: bytes) -> None:
        self.accepted_by_peer.pop(name, None)

    def take_acknowledged(self) -> list[Acknowledge]:
        """The groups for which an answer that came now counts."""
        active, accepted = self.active, self.accepted_by_peer
        idle = self._acknowledge_turns.take(accepted)
        names = [*active, *(name for name in idle if name not in active)]
        self.active = {name: left - 1 for name, left in active.items() if left > 1}
        return [accepted[name] for name in names if name in accepted]


class Announced(NamedTuple):
    """A group that the other node says it leads."""

    name: bytes
    term: Term
    in_sync: tuple[int, ...]


def write_leads(writer: FrameWriter, groups: Iterable[tuple[bytes, Led]], *, is_all: bool) -> None:
    parts = []
    count = 0
    for name, led in groups:
        nodes = led.in_sync[:_IN_SYNC_MAX]
        parts.append(_LEADERSHIP.pack(name, led.term, len(nodes)))
        parts.extend([_NODE.pack(node) for node in nodes])
        count += 1
    writer.write(_LEADS_HEAD.pack(LEADS, is_all, count) + b"".join(parts))


def read_leads(reader: FrameReader) -> tuple[bool, list[Announced]]:
    """Whether these are all that there are, and the groups; raises DecodeError."""
    is_all = reader.byte() != 0
    groups = []
    for _ in range(reader.count(_LEADERSHIP.size)):
        name = bytes(reader.take(KEY_SIZE))
        term, in_sync_count = reader.unpack(_TERM_AND_COUNT)
        in_sync = tuple([reader.unpack(_NODE)[0] for _ in range(in_sync_count)])
        groups.append(Announced(name, Term(term), in_sync))
    return is_all, groups


def write_number(writer: FrameWriter, kind: int, number: int) -> None:
    writer.write(_BEAT.pack(kind, number))


def write_groups(writer: FrameWriter, groups: Sequence[tuple[bytes, Term]]) -> None:
    parts = [_GROUP.pack(name, term) for name, term in groups]
    writer.write(_COUNT.pack(len(parts)) + b"".join(parts))


def read_groups(reader: FrameReader) -> list[tuple[bytes, Term]]:
    groups = []
    for _ in range(reader.count(_GROUP.size)):
        name = bytes(reader.take(KEY_SIZE))
        groups.append((name, Term(reader.unpack(NUMBER)[0])))
    return groups
