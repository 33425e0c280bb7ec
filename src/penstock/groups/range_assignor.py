"""The assignor "range": of every topic, each member gets one run of neighbouring partitions.

If all members subscribe to the same topics and these have the same number of partitions, a member
gets the same numbers of each: what a join of two streams needs. Static members come first, in the
order of their instance ids, so that a restarted one finds its partitions again.
"""

from uuid import UUID

from penstock.groups.assignors import RANGE, Assignment, AssignmentSpec, MemberSubscription
from penstock.model.ids import MemberId


class RangeAssignor:
    name = RANGE

    def assign(self, spec: AssignmentSpec) -> dict[MemberId, Assignment]:
        members = sorted(spec.members, key=lambda member: _order(member, spec.members[member]))
        assigned: dict[MemberId, dict[UUID, frozenset[int]]] = {member: {} for member in members}
        for topic_id, subscribers in _subscribers(spec, members).items():
            _share_out(topic_id, spec.partitions.get(topic_id, 0), subscribers, assigned)
        return {member: assigned[member] for member in members}


def _order(member: MemberId, subscription: MemberSubscription) -> tuple[bool, str]:
    if subscription.instance_id is not None:
        return False, subscription.instance_id
    return True, member


def _subscribers(spec: AssignmentSpec, members: list[MemberId]) -> dict[UUID, list[MemberId]]:
    if spec.is_homogeneous and members:
        return dict.fromkeys(spec.members[members[0]].topic_ids, members)
    found: dict[UUID, list[MemberId]] = {}
    for member in members:
        for topic_id in spec.members[member].topic_ids:
            found.setdefault(topic_id, []).append(member)
    return found


def _share_out(
    topic_id: UUID,
    partition_count: int,
    subscribers: list[MemberId],
    assigned: dict[MemberId, dict[UUID, frozenset[int]]],
) -> None:
    each, left_over = divmod(partition_count, len(subscribers))
    start = 0
    for position, member in enumerate(subscribers):
        end = start + each + (position < left_over)
        if start < end:
            assigned[member][topic_id] = frozenset(range(start, end))
        start = end
