"""How many records members have of all queues that this broker leads: their groups may set limits.

Counted as leases come and go, so a question costs nothing, however many queues there are.
"""

from collections import defaultdict
from collections.abc import Callable

from penstock.model.ids import GroupId, MemberId
from penstock.queues.commands import ShareSettings

NO_LIMIT = 1 << 31


class _OfGroup:
    __slots__ = ("by_member", "total", "waiting")

    def __init__(self) -> None:
        self.total = 0
        self.by_member: dict[MemberId, int] = {}
        # Queues that had records for a member which may not have more. In order, each once.
        self.waiting: dict[Callable[[], None], None] = {}

    def add(self, member_id: MemberId, count: int) -> None:
        self.total += count
        left = self.by_member.get(member_id, 0) + count
        if left:
            self.by_member[member_id] = left
        else:
            self.by_member.pop(member_id, None)


# Where nobody has anything there is always room.
_NOBODY = _OfGroup()


class LeaseTally:
    """Of one broker."""

    def __init__(self) -> None:
        self._groups: dict[GroupId, _OfGroup] = {}

    def of_queue(self, group_id: GroupId) -> "QueueTally":
        return QueueTally(self._groups, group_id)


class QueueTally:
    """The part of one queue, which can be taken back as a whole when the queue is dropped."""

    __slots__ = ("_group_id", "_groups", "_mine")

    def __init__(self, groups: dict[GroupId, _OfGroup], group_id: GroupId) -> None:
        self._groups = groups
        self._group_id = group_id
        self._mine: defaultdict[MemberId, int] = defaultdict(int)

    def add(self, member_id: MemberId, count: int) -> None:
        self._mine[member_id] += count
        if not self._mine[member_id]:
            del self._mine[member_id]
        group = self._groups.get(self._group_id)
        if group is None:
            group = self._groups[self._group_id] = _OfGroup()
        group.add(member_id, count)

    def room(
        self, member_id: MemberId, settings: ShareSettings, on_room: Callable[[], None]
    ) -> int:
        """How many more the member may have. If none, `on_room` is called once there may be."""
        if not settings.member_leased_max and not settings.group_leased_max:
            return NO_LIMIT
        group = self._groups.get(self._group_id, _NOBODY)
        room = NO_LIMIT
        if settings.group_leased_max:
            room = settings.group_leased_max - group.total
        if settings.member_leased_max:
            room = min(room, settings.member_leased_max - group.by_member.get(member_id, 0))
        if room <= 0:
            group.waiting[on_room] = None
        return room

    def ended(self) -> None:
        """Leases have ended: queues of the group that had to wait for it look again."""
        group = self._groups.get(self._group_id)
        if group is None:
            return
        waiting, group.waiting = group.waiting, {}
        if not group.total:
            del self._groups[self._group_id]
        for look_again in waiting:
            look_again()

    def clear(self) -> None:
        """The queue is dropped. Who leads it next counts its leases."""
        for member_id, count in list(self._mine.items()):
            self.add(member_id, -count)
        self.ended()
