"""Answers doors that are members of a consumer group for a client."""

from penstock.broker.doors import calls
from penstock.broker.doors.administration import commit, find_coordinator
from penstock.broker.doors.desk import Desk, Method
from penstock.broker.doors.member_calls import BeatAsMember, CommitAsMember, Membership
from penstock.broker.groups import CommitOffsets, ConsumerHeartbeat
from penstock.model.ids import BrokerId, GroupId, MemberId


async def at_coordinator(desk: Desk, call: BeatAsMember | CommitAsMember) -> BrokerId:
    return await find_coordinator(desk, call.group_id)


async def beat(desk: Desk, call: BeatAsMember) -> Membership:
    owned = call.owned
    answer = await desk.services.groups.consumer_heartbeat(
        ConsumerHeartbeat(
            group_id=GroupId(call.group_id),
            member_id=MemberId(call.member_id),
            member_epoch=call.member_epoch,
            client_id=call.client_id,
            rebalance_timeout_ms=call.rebalance_timeout_ms,
            topics=None if call.topics is None else frozenset(call.topics),
            owned=None if owned is None else {topic: frozenset(each) for topic, each in owned},
        )
    )
    assignment = answer.assignment
    return Membership(
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        assignment=None
        if assignment is None
        else [(topic, sorted(partitions)) for topic, partitions in assignment.items()],
    )


async def commit_as_member(desk: Desk, call: CommitAsMember) -> calls.Done:
    command = CommitOffsets(
        group_id=GroupId(call.group_id),
        member_id=MemberId(call.member_id),
        generation=call.member_epoch,
        offsets=(),
    )
    return await commit(desk, command, call.offsets)


METHODS = (
    Method(BeatAsMember, beat, at_coordinator),
    Method(CommitAsMember, commit_as_member, at_coordinator),
)
