"""Bugs to inject into what makes a cluster of nodes: what runs of whole nodes must notice.

The docstring of each says which rule it breaks.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

from penstock.broker.local_replicas import LocalReplicas
from penstock.broker.readers import Reader, Wanted
from penstock.cluster.deciding import Decider
from penstock.cluster.registration import Registration
from penstock.cluster.topic import Topic
from penstock.groups import coordinator
from penstock.groups.coordinator import Coordinator
from penstock.groups.group import Group
from penstock.groups.members import Member
from penstock.groups.membership import Membership
from penstock.groups.records import GroupRecord, GroupRemoved
from penstock.groups.state import GroupsState
from penstock.model.errors import Reason, Refused
from penstock.model.file_ranges import FileRange
from penstock.model.ids import GroupId, MemberId, Offset, ReplicaId
from penstock.raft.leader import Leader
from penstock.records.batch import BatchHeader
from penstock.records.record import Headers
from penstock.replication import state_files
from penstock.replication.commit import Commit
from penstock.replication.exchange import Exchange
from penstock.replication.feed import Feed
from penstock.replication.group_member import GroupMember
from penstock.replication.hosting import Host
from penstock.replication.keeper import LogKeeper
from penstock.replication.positions import end_of_term
from penstock.replication.replica import Replica
from penstock.storage import snapshot
from penstock.storage.checksummed import _PREFIX
from penstock.storage.file_system import FileSystem
from penstock.storage.log import Log, LogRange
from penstock.storage.segment import Segment
from penstock.storage.snapshot import Snapshot
from tests.sim.mutation import Mutations

ALL = Mutations()
mutation = ALL.add


# Metadata


@mutation("the controller appends what was decided on an old copy", (Decider, "_append"))
async def appends_stale_decisions(
    self: Decider, _: Offset, records: Sequence[Any], try_id: UUID | None
) -> tuple[Offset, bool]:
    """A decision holds only for the state that it was taken on."""
    self._check_controller()
    return await self._commit(records, try_id), True


_decide = Decider.decide


@mutation("a node refuses by its own copy, however old it is", (Decider, "decide"))
async def refuses_by_old_copy(self: Decider, decision: Any) -> Any:
    """An answer that changes nothing is one about the present state too."""
    records, answer = decision(self._feed.state)
    if not records:
        return answer, self._feed.applied
    return await _decide(self, decision)


@mutation("a change without an answer is decided again", (Decider, "_is_committed"))
async def decides_again(_: Decider, __: Any) -> bool:
    """It may have been made, and one request takes effect once."""
    return False


@mutation("whatever lies where a change was to go is taken for it", (Decider, "_is_committed"))
async def takes_others_for_own(self: Decider, decided: Any) -> bool:
    """Somebody else may have been the first to append there."""
    return self._feed.applied > decided.offset


@mutation("a hosted state answers before its records are committed", (Host, "submit"))
def answers_before_commit(
    self: Host[Any, Any], records: Sequence[Any], headers: Headers = ()
) -> asyncio.Future[None]:
    """What was answered is never taken back."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    try:
        if not self._is_ready:
            self._refuse_unready()
        self._append(records, headers)
        done.set_result(None)
    except Refused as refused:
        done.set_exception(refused)
    return done


@mutation("a leader asks nobody whether it still leads", (GroupMember, "confirm"))
async def confirms_alone(self: GroupMember) -> None:
    """A leader that was cut off is not sure of it."""
    self.check_leader()


# Snapshots


@mutation("a host's snapshot holds what is not committed", (Host, "_write_committed"))
async def snapshots_uncommitted(
    self: Host[Any, Any], _: Commit, encode: Callable[[], bytes], offset: Offset
) -> bool:
    """What another leader replaces must not come back."""
    loop = asyncio.get_running_loop()
    try:
        await loop.run_in_executor(self._executor, self._file.write, encode, offset)
    except OSError:
        return False
    self._snapshot_offset = offset
    return True


@mutation("a feed's snapshot claims more than was applied", (Feed, "_start_snapshot"))
def snapshots_what_is_to_come(self: Feed[Any, Any]) -> asyncio.Task[bool]:
    """What lies between is never applied by anyone who begins there."""
    self._records_since_snapshot = 0
    writing = self._write(self.state.snapshot(), self.replica.high_watermark)
    task = asyncio.get_running_loop().create_task(writing)
    self._snapshotting = task
    task.add_done_callback(self._snapshot_ended)
    return task


@mutation("a snapshot is believed without its checksum", (state_files, "read_snapshot"))
def believes_snapshots(file_system: FileSystem, path: Path) -> Snapshot | None:
    """What a disk made of a snapshot is not what its state was: the log says that."""
    if not file_system.exists(path):
        return None
    data = file_system.read(path)
    (offset,) = snapshot._OFFSET.unpack_from(data, _PREFIX.size)
    return Snapshot(data[_PREFIX.size + snapshot._OFFSET.size :], Offset(offset))


# Consumers


@mutation("a fetch session forgets where its consumer has come to", (Wanted, "move_to"))
def session_stands_still(self: Wanted, newer: Wanted) -> None:
    """A consumer names only what has changed, and so all of it counts."""


@mutation("a reader does not hear of news", (Reader, "_touched"))
def reader_is_deaf(self: Reader, wanted: Wanted) -> None:
    """What is not looked at again must say by itself that it is worth a look."""


@mutation("a reader listens to a replica that is gone", (Reader, "listen"))
def reader_listens_once(self: Reader) -> None:
    """A partition that comes back is another replica."""
    for wanted in self._news:
        if wanted.watch is None:
            with suppress(Refused):
                wanted.replica = self.find(wanted)
                wanted.watch = wanted.replica.on_advance(partial(self._touched, wanted))


@mutation("a new leader tells too early where a term ended", (Replica, "end_offset_for_epoch"))
def ends_terms_too_early(self: Replica, epoch: int) -> tuple[int, int]:
    """Before it has committed it may not know of all that was."""
    self.check_leader()
    return end_of_term(self._log, epoch, self.term, self.high_watermark)


# Groups


@mutation("the offsets of a deleted group stay", (coordinator, "decide_group_removal"))
def offsets_outlive_group(_: GroupsState, group_id: GroupId) -> list[GroupRecord]:
    """Anyone who uses the name of a deleted group next begins without offsets."""
    return [GroupRemoved(group_id)]


@mutation("a group is deleted although it has members", (Coordinator, "remove_groups"))
async def deletes_used_groups(
    self: Coordinator, group_ids: Sequence[GroupId]
) -> list[Reason | None]:
    """Anyone who is in a group keeps its offsets."""
    await self._until_ready()
    records: list[GroupRecord] = []
    outcomes: list[Reason | None] = []
    for group_id in group_ids:
        group = self._classic.view(group_id)
        outcomes.append(Reason.GROUP_ID_NOT_FOUND if group is None else None)
        if group is not None:
            records += coordinator.decide_group_removal(self._host.state, group_id)
            self._classic.end(group)
    await self._host.submit(records)
    return outcomes


@mutation("a coordinator says alone that something is not there", (Coordinator, "_confirm"))
async def nothing_there_alone(self: Coordinator) -> None:
    """A coordinator that was cut off does not know what the next one has stored."""


@mutation("a static member's old id is not fenced", (Membership, "_check_member"))
def old_id_not_fenced(self: Membership, member_id: MemberId, instance_id: str | None) -> Member:
    """Of two that use the same name only the last to join is the member."""
    if instance_id is not None:
        member_id = self.members.static_id(instance_id) or member_id
    member = self.members.get(member_id)
    if member is None:
        raise Refused(Reason.UNKNOWN_MEMBER_ID)
    return member


@mutation("a static member that comes back is a rebalance", (Group, "_would_change"))
def returns_rebalance(self: Group, member: Member, topics_before: frozenset[str] | None) -> bool:
    """A restart that changes nothing interrupts nobody."""
    return True


# Followers that serve consumers


@mutation("a follower shows all that it has", (Replica, "read_as_follower"))
def follower_shows_all(self: Replica, offset: int, bytes_max: int) -> FileRange | None:
    """What is not committed may be replaced."""
    if offset >= self.log_end_offset:
        return None
    return self._log.read(Offset(offset), bytes_max, self.log_end_offset)


@mutation("a follower that has lost something serves consumers", (Replica, "check_follower"))
def follower_in_doubt_serves(self: Replica) -> None:
    """Until it was filled again it does not have what it once showed."""
    self.check_running()
    if self.is_leader or self._node.leader is None:
        raise self._not_leader()


@mutation("a follower judges offsets that it does not have", (Replica, "read_as_follower"))
def follower_judges(self: Replica, offset: int, bytes_max: int) -> FileRange | None:
    """It may lag, and clients take it at its word."""
    if self.high_watermark <= offset <= self.log_end_offset:
        return None
    return self._read(offset, bytes_max)


@mutation("a leader sends consumers to followers that lag", (Replica, "followers_with"))
def leader_names_those_who_lag(self: Replica, offset: int) -> dict[ReplicaId, Offset]:
    """They would come back at once."""
    return {member: end for member, end in self.progress().items() if member != self.id}


@mutation("a leader sends consumers to directories that were lost", (Exchange, "reaches"))
def leader_names_lost_directories(self: Exchange, replica: ReplicaId) -> bool:
    """The node is back with a new one, and it is empty."""
    return self.is_alive(replica.node)


@mutation("a leader commits what its own disk lacks", (Leader, "committable_index"))
def leader_commits_without_its_disk(self: Leader) -> int:
    """A consumer that comes back from a follower would be ahead of its leader."""
    index = self.replication.quorum_match_index()
    return index if index >= self.term_first_index else 0


# Rot


@mutation("old ranges are sent unchecked", (Log, "warm"))
def sends_unchecked(self: Log, found: LogRange) -> None:
    """No checksum covers where a batch lies in the log, so no consumer would notice."""


@mutation("what an earlier process wrote needs no check", (Log, "is_hot"))
def trusts_active_segment(self: Log, found: LogRange) -> bool:
    """It may have rotted while no process ran."""
    return found.segment is self._state.segments.active


@mutation("a look through a segment believes its offsets", (Segment, "_check"))
def believes_offsets(self: Segment, _: int, header: BatchHeader, __: int) -> int:
    """A copy of the segment, or an index of it, would make the bad offset a good one."""
    return header.next_offset


# Stops


@mutation("a closed log has no checkpoint", (LogKeeper, "close"))
async def closes_without_checkpoint(self: LogKeeper, *, with_checkpoint: bool) -> None:
    """After a stop there is nothing to recover."""
    self.end()
    await asyncio.gather(*self._tasks, return_exceptions=True)
    await self._writer.idle()
    await self._in_thread(self._executor, self._log.close)


# Members and moves


@mutation("the metadata's group keeps the members it began with", (Registration, "_name_members"))
def metadata_members_stay(self: Registration) -> None:
    """A node that comes back with an empty disk takes its own place."""


@mutation("partitions' groups keep the members they began with", (LocalReplicas, "_name_members"))
def partition_members_stay(self: LocalReplicas, topic: Topic) -> None:
    """A leader brings its group to what the metadata wants."""


@mutation("replicas that moved away stay", (LocalReplicas, "_give_up_moved"))
async def moved_replicas_stay(self: LocalReplicas, topic: Topic) -> None:
    """What moved is gone where it was."""
