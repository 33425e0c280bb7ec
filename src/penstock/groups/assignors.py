"""What an assignor of the new protocol gets and returns, and how a site adds its own (KIP-848).

An assignor says who should own which partitions of a group. It is a pure function: the same
members, subscriptions and partition counts always give the same assignment. Who may use a partition
at once and who has to wait until it was given up is not its business.

"uniform" and "range" are built in. Any other name is looked up among the entry points of installed
packages, in the group `penstock.assignors`, when it is first needed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from uuid import UUID

from penstock.model.errors import Explained, Reason, Refused
from penstock.model.ids import MemberId

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINTS: Final = "penstock.assignors"
UNIFORM: Final = "uniform"
RANGE: Final = "range"
# For share groups, whose members may have the same partition.
SIMPLE: Final = "simple"
BUILT_IN: Final = (UNIFORM, RANGE)

Assignment = Mapping[UUID, frozenset[int]]
# Members and partitions that may be assigned on the event loop: in about 20 ms. Where members read
# different topics, each of them takes longer.
QUICK_WORK_MAX: Final = 20_000
MIXED_WORK: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSubscription:
    """What one member wants, and what the last target assignment gave to it."""

    instance_id: str | None = None
    rack_id: str | None = None
    topic_ids: frozenset[UUID]
    assigned: Assignment


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentSpec:
    members: Mapping[MemberId, MemberSubscription]
    # How many partitions each topic has. A subscribed topic that is not here has none.
    partitions: Mapping[UUID, int]
    # Whether all members subscribe to the same topics.
    is_homogeneous: bool
    # Of a share group: the partitions that may be assigned by now, which may be fewer.
    assignable: Assignment | None = None


class Assignor(Protocol):
    @property
    def name(self) -> str: ...

    def assign(self, spec: AssignmentSpec) -> dict[MemberId, Assignment]:
        """For every member an assignment; a partition goes to one member that wants its topic."""


def load_assignors(names: Sequence[str]) -> dict[str, Assignor]:
    """The assignors of these names, in this order; raises Explained for one that can't be used."""
    return {name: load_assignor(name) for name in names}


def load_assignor(name: str) -> Assignor:
    # Most nodes never have a group that needs either, so they are imported here.
    if name == UNIFORM:
        from penstock.groups.uniform_assignor import UniformAssignor

        return UniformAssignor()
    if name == RANGE:
        from penstock.groups.range_assignor import RangeAssignor

        return RangeAssignor()
    return _load_foreign(name)


def load_share_assignors(names: Sequence[str]) -> dict[str, Assignor]:
    """As in Kafka there is just one for share groups. A site can't add its own yet."""
    if tuple(names) != (SIMPLE,):
        raise Explained(
            f"group.share.assignors has to be {SIMPLE}, the one assignor that there is."
        )
    from penstock.groups.simple_assignor import SimpleAssignor

    return {SIMPLE: SimpleAssignor()}


def _load_foreign(name: str) -> Assignor:
    # It takes a good part of a start to import, and hardly any node needs it.
    from importlib.metadata import entry_points

    found = [point for point in entry_points(group=ENTRY_POINTS) if point.name == name]
    if not found:
        others = sorted({point.name for point in entry_points(group=ENTRY_POINTS)})
        known = ", ".join((*BUILT_IN, *others))
        raise Explained(f"There is no assignor {name!r}. These are installed: {known}.")
    if len({point.value for point in found}) > 1:
        places = " and ".join(sorted({point.value for point in found}))
        raise Explained(f"The assignor {name!r} is installed twice: {places}.")
    return GuardedAssignor(name, _made(found[0]))


def _made(point: "EntryPoint") -> Callable[[AssignmentSpec], Any]:
    place = f"The assignor {point.name!r} ({point.value})"
    try:
        made = point.load()()
    except Exception as error:
        raise Explained(f"{place} can't be loaded: {type(error).__name__}: {error}.") from error
    assign = getattr(made, "assign", None)
    if not callable(assign):
        raise Explained(f"{place} has no method `assign`.")
    own_name = getattr(made, "name", None)
    if own_name != point.name:
        raise Explained(f"{place} calls itself {own_name!r}; both names have to be the same.")
    return assign  # type: ignore[no-any-return]


class GuardedAssignor:
    """A site's own assignor. What it returns is checked, since members would read twice, or not at
    all, what it assigned wrongly."""

    def __init__(self, name: str, assign: Callable[[AssignmentSpec], Any]) -> None:
        self.name = name
        self._assign = assign

    def assign(self, spec: AssignmentSpec) -> dict[MemberId, Assignment]:
        try:
            return _checked(spec, self._assign(spec))
        except _BadAssignmentError as error:
            complaint = str(error)
        except Exception as error:
            complaint = f"failed: {type(error).__name__}: {error}"
        raise Refused(Reason.UNKNOWN_SERVER_ERROR, f"The assignor {self.name!r} {complaint}.")


def is_quick(assignor: Assignor, spec: AssignmentSpec) -> bool:
    """Whether it surely takes little time: nobody knows how long a site's own one takes."""
    if isinstance(assignor, GuardedAssignor):
        return False
    work = len(spec.members) + sum(spec.partitions.values())
    return work * (1 if spec.is_homogeneous else MIXED_WORK) <= QUICK_WORK_MAX


class _BadAssignmentError(Exception):
    pass


class _Given(NamedTuple):
    member: MemberId
    topic_id: UUID
    partition: int


def _checked(spec: AssignmentSpec, returned: Any) -> dict[MemberId, Assignment]:
    if not isinstance(returned, Mapping):
        raise _BadAssignmentError("did not return a mapping from members to assignments")
    if returned.keys() != spec.members.keys():
        raise _BadAssignmentError("did not return just the members of the group")
    given_to: dict[tuple[UUID, int], MemberId] = {}
    for given in _each(returned):
        _check(spec, given)
        other = given_to.setdefault((given.topic_id, given.partition), given.member)
        if other != given.member:
            raise _BadAssignmentError(f"gave {_place(given)} to both {other} and {given.member}")
    _check_nothing_left(spec, given_to)
    return {
        member: {topic: frozenset(partitions) for topic, partitions in assignment.items()}
        for member, assignment in returned.items()
    }


def _each(returned: Mapping[MemberId, Mapping[UUID, Any]]) -> Iterator[_Given]:
    for member, assignment in returned.items():
        for topic_id, partitions in assignment.items():
            for partition in partitions:
                yield _Given(member, topic_id, partition)


def _check(spec: AssignmentSpec, given: _Given) -> None:
    if given.topic_id not in spec.members[given.member].topic_ids:
        raise _BadAssignmentError(
            f"gave {_place(given)} to {given.member}, which did not subscribe"
        )
    if given.partition not in range(spec.partitions.get(given.topic_id, 0)):
        raise _BadAssignmentError(f"gave away {_place(given)}, which does not exist")


def _check_nothing_left(
    spec: AssignmentSpec, given_to: Mapping[tuple[UUID, int], MemberId]
) -> None:
    subscribed = frozenset[UUID]().union(*(each.topic_ids for each in spec.members.values()))
    partition_count = sum(spec.partitions.get(topic_id, 0) for topic_id in subscribed)
    if len(given_to) < partition_count:
        raise _BadAssignmentError(f"left {partition_count - len(given_to)} partitions to nobody")


def _place(given: _Given) -> str:
    return f"partition {given.partition} of topic {given.topic_id}"
