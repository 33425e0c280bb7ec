"""A replica's part in its Raft group: the core runs here on one log and reports its decisions.

The event loop owns everything. What clients append and read is the business of `replica.py`; here
are terms and leadership, the log's growth and truncation on leaders and followers, the high
watermark, the in-sync set and the members.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from penstock.model.errors import Reason, Refused
from penstock.model.ids import (
    BrokerId,
    LogIndex,
    Offset,
    PartitionId,
    ReplicaId,
    Term,
    TopicId,
    TopicPartition,
)
from penstock.model.topic_config import FlushPolicy, TopicConfig
from penstock.raft.membership import Membership
from penstock.raft.messages import Message, TimeoutNow, VoteRequest
from penstock.raft.node import RaftNode
from penstock.raft.ready import Leadership, Ready, Role
from penstock.records.batch import parse_header
from penstock.replication.acknowledgements import Acknowledgements
from penstock.replication.backlog import Backlog
from penstock.replication.batch_buffers import Batch
from penstock.replication.confirmed_reads import ConfirmedReads
from penstock.replication.consensus import Consensus
from penstock.replication.entry_codec import SnapshotContent
from penstock.replication.in_sync import TICKS_PER_SAMPLE, InSync, index_held_by
from penstock.replication.index_offsets import IndexOffsets
from penstock.replication.keeper import LogKeeper
from penstock.replication.log_starts import LogStarts
from penstock.replication.membership_keeper import MembershipKeeper
from penstock.replication.opening import (
    OpenedLog,
    make_node,
    make_offsets,
    note_log_starts,
    snapshot_of,
)
from penstock.replication.producer_ledger import ProducerLedger
from penstock.replication.raft_log import StoredLog
from penstock.replication.refill import Refill
from penstock.replication.replica_parts import ReplicaParts
from penstock.replication.watches import Watch, Watches
from penstock.replication.writer import Writer
from penstock.storage.log import Log

logger = logging.getLogger(__name__)

# A new group's first replica asks for votes again this often, and for so long: the others may be
# made a moment later.
EAGER_TICKS = 2
EAGER_TICKS_MAX = 50


class GroupMember(ABC):
    """Silent once `_refusal` is set: it neither votes nor acknowledges any more."""

    __slots__ = (
        "_acks",
        "_applied_index",
        "_backlog",
        "_consensus",
        "_eager_ticks",
        "_flush_timer",
        "_has_log",
        "_in_sync",
        "_installed_offset",
        "_keeper",
        "_leadership_index",
        "_leadership_watches",
        "_ledger",
        "_log",
        "_loop",
        "_members",
        "_node",
        "_parts",
        "_reads",
        "_refill",
        "_refusal",
        "_starts",
        "_ticks",
        "_watches",
        "_writer",
        "config",
        "has_peers",
        "high_watermark",
        "id",
        "is_leader",
        "is_returning",
        "is_settled",
        "key",
        "log_end_offset",
        "partition",
        "term",
        "topic_id",
        "traffic",
    )

    # A replica whose log could not be opened has none of these.
    _log: Log
    _node: RaftNode
    _writer: Writer
    _keeper: LogKeeper
    _consensus: Consensus
    _members: MembershipKeeper
    _refill: Refill

    def __init__(
        self,
        *,
        partition: TopicPartition,
        topic_id: TopicId,
        config: TopicConfig,
        parts: ReplicaParts,
    ) -> None:
        self.id = parts.own
        self.key = PartitionId(topic_id, partition.partition)
        self.partition = partition
        self.topic_id = topic_id
        self.config = config
        # In this term. A leader is settled once it committed an entry of its own, and so knows
        # everything that any earlier leader acknowledged.
        self.term = Term(0)
        self.is_leader = False
        self.is_settled = False
        self.high_watermark = self.log_end_offset = Offset(0)
        # Whether there are, or were, other members.
        self.has_peers = False
        # Whether it moved away, came back, and does not have everything again yet.
        self.is_returning = False
        self._parts = parts
        self._loop = asyncio.get_running_loop()
        self._has_log = False
        self._refusal: tuple[Reason, str] | None = None
        self._watches = Watches()
        self._leadership_watches = Watches()
        # None where nothing is counted.
        counters = parts.counters
        self.traffic = None if counters is None else counters.topics.of(partition.topic)
        self._backlog = Backlog(parts.pressure, parts.unflushed_bytes_max)
        self._flush_timer: asyncio.TimerHandle | None = None
        self._acks = Acknowledgements()
        self._in_sync = InSync(parts.own, parts.counters)
        self._starts = LogStarts()
        self._reads = ConfirmedReads()
        self._ledger = ProducerLedger()
        self._applied_index = self._leadership_index = LogIndex(0)
        self._installed_offset = Offset(0)
        self._ticks = self._eager_ticks = 0

    def _attach(self, opened: OpenedLog) -> None:
        """The group is joined: from here on the replica votes, follows and leads."""
        parts = self._parts
        log, self._ledger = opened.log, opened.ledger
        self._log, self._has_log = log, True
        stored = StoredLog(log, parts)
        self._node = make_node(opened, parts, stored)
        commit_index = self._node.commit_index
        offsets = make_offsets(log, commit_index)
        self.term = self._node.term
        self.high_watermark = offsets.after(commit_index)
        self.log_end_offset = log.end_offset
        self._ledger.settle(self.high_watermark)
        self.is_returning = opened.is_returning
        self._make_parts(log, offsets, stored)
        self._note_membership()
        note_log_starts(self._starts, log, commit_index)
        if self._starts.committed > log.start_offset:
            self._keeper.delete_soon(self._starts.committed)
        if opened.leads_first:
            self._eager_ticks = EAGER_TICKS_MAX
        if (opened.leads_first or self._is_sole_voter) and not self._refill.is_due:
            self._node.campaign()
        self._consensus.touch()

    def _make_parts(self, log: Log, offsets: IndexOffsets, stored: StoredLog) -> None:
        parts = self._parts
        self._writer = Writer(
            log,
            self,
            loop=self._loop,
            side=parts.write_side,
            syncs_before_ack=self.config.flush_policy is FlushPolicy.BEFORE_ACK,
        )
        self._keeper = LogKeeper(
            log,
            self._writer,
            executor=parts.executor,
            background=parts.background,
            file_system=parts.file_system,
            on_damage=self.stop,
            on_start=self._watches.notify,
        )
        self._consensus = Consensus(
            self._node,
            self,
            key=self.key,
            offsets=offsets,
            stored=stored,
            writer=self._writer,
            hard_states=parts.hard_states,
            outbound=parts.outbound,
            loop=self._loop,
        )
        self._members = MembershipKeeper(self._node, self._in_sync)
        self._refill = Refill(log, self._node, self._keeper, is_returning=self.is_returning)
        self._consensus.throttle_by(parts.throttle, self.config, self._in_sync)

    @abstractmethod
    def stop(self, error: Exception) -> None:
        """Takes the replica out of service until an operator has repaired its log."""

    # What it is

    @property
    def leader(self) -> ReplicaId | None:
        return self._node.leader if self._has_log else None

    @property
    def membership(self) -> Membership:
        return self._node.membership if self._has_log else Membership(frozenset())

    @property
    def _is_sole_voter(self) -> bool:
        return self._node.membership.voters == {self.id}

    @property
    def is_alone(self) -> bool:
        return self.membership.members == {self.id}

    @property
    def failing_because(self) -> OSError | None:
        """Why its disk can't write: it refused or it hangs. None once it did after all."""
        return self._writer.failure or self._parts.hard_states.hangs if self._has_log else None

    def in_sync(self) -> list[BrokerId]:
        """The voters that have what the leader has, or had it a moment ago; empty elsewhere."""
        return self._in_sync.nodes

    def check_running(self) -> None:
        if self._refusal is not None:
            raise Refused(*self._refusal)

    def check_leader(self) -> None:
        if not self.is_leader:
            self.check_running()
            raise self._not_leader()

    def check_writable(self) -> None:
        """As `check_leader`; a leader whose disk is full leads only readers."""
        self.check_leader()
        if self._writer.failure is not None:
            raise self._not_leader()

    def _not_leader(self) -> Refused:
        if self._refill.stuck:
            return Refused(Reason.STORAGE_ERROR, self._refill.stuck)
        failure = self._writer.failure
        if failure is not None:
            return Refused(Reason.STORAGE_ERROR, f"{self.partition} can't be written: {failure}")
        detail = f"{self.partition} is not led by this broker"
        return Refused(Reason.NOT_LEADER_OR_FOLLOWER, detail)

    # What consensus tells

    def turn_ends(self) -> None:
        self._acks.close()

    def received(self, batch: Batch, offset: Offset) -> None:
        header = parse_header(batch)
        assert header.base_offset == offset, f"a batch for {header.base_offset} arrived at {offset}"
        if header.producer_id >= 0:
            self._ledger.record(header, offset, self._parts.clock.now_ms())

    def truncated(self, index: int, offset: Offset) -> None:
        self._ledger.roll_back(offset, self._parts.clock)
        self._starts.truncate(index)

    def installed(self, content: SnapshotContent) -> None:
        self._ledger.restore(content.producers)
        self._starts.truncate(0)
        self._installed_offset = self.log_end_offset = content.offset
        # Readers of a follower must hear that it serves nobody until it has caught up.
        self._watches.notify()

    def log_start_noted(self, index: int, offset: Offset) -> None:
        self._starts.note(index, offset)

    def log_ends_at(self, offset: Offset) -> None:
        self.log_end_offset = offset

    def applied(self, index: LogIndex, offset: Offset) -> None:
        self._applied_index = index
        # It stays where only own entries were applied, and while a snapshot is being installed.
        has_advanced = offset > self.high_watermark
        if has_advanced:
            self.high_watermark = offset
            self._ledger.settle(offset)
        if self._starts.apply(index):
            self._keeper.delete_soon(self._starts.committed)
        if has_advanced:
            self._watches.notify()

    def drained(self) -> None:
        if self._acks.is_due(self._node.stable_index, self._applied_index):
            self._settle_acks()
        if self.has_peers and self._consensus.keeps_much and self.is_leader:
            self._consensus.let_go(self._node.replicas())
        if self._reads.waiting:
            self._reads.settle(self._applied_index)
        if self.is_leader and not self.is_settled and self._applied_index >= self._leadership_index:
            self.is_settled = True
            self._parts.outbound.announce(self)
            self._notify_leadership()
        if self._refill.is_due and self._is_refilled():
            self._end_refill()

    def _settle_acks(self) -> None:
        counters = self._parts.counters if self.has_peers else None
        now = 0.0 if counters is None else self._parts.clock.monotonic()
        self._acks.stored(self._node.stable_index, now)
        waits = None if counters is None else counters.replication
        index = self._acknowledged_index()
        self._backlog.remove(self._acks.committed(index, now, waits, self.traffic))

    def _acknowledged_index(self) -> LogIndex:
        """Up to here everything is committed, and held by as many voters as the topic asks for."""
        if not self.has_peers:  # and so no other voter
            return self._applied_index
        held = index_held_by(self.config.min_insync_replicas, self._node)
        return LogIndex(min(self._applied_index, held))

    def news(self, leadership: Leadership | None) -> None:
        self._note_membership()
        self._refill.note_stuck(self.partition, self._node.stuck)
        if leadership is not None:
            self._change_leadership(leadership)
        else:
            # A replica that lost its vote, or whose log is replaced, serves no readers.
            self._watches.notify()
        self._members.refresh()
        self._parts.outbound.announce(self)

    def _note_membership(self) -> None:
        if not self.has_peers and len(self._node.membership.members | {self.id}) > 1:
            self.has_peers = True
            self._backlog.share()

    def _change_leadership(self, leadership: Leadership) -> None:
        was_leader = self.is_leader
        self.term = leadership.term
        self.is_leader = leadership.role is Role.LEADER
        if self.is_leader:
            if self._parts.counters is not None:
                self._parts.counters.elections_won += 1
            self._leadership_index = self._node.last_index
            self._in_sync.begin(self._node.membership.voters, self._node.last_index)
        elif was_leader:
            self._settle_acks()
            self._step_down(self._not_leader())
        self._notify_leadership()

    def _step_down(self, refused: Refused) -> None:
        self.is_leader = self.is_settled = False
        self._in_sync.end()
        self._backlog.remove(self._acks.refuse(refused))

    def _leave(self, refused: Refused) -> None:
        """This replica has ended: everyone who waits for it is notified."""
        self._step_down(refused)
        self._reads.refuse(refused)
        self._members.is_due = False
        self._parts.outbound.announce(self)

    def _notify_leadership(self) -> None:
        self._leadership_watches.notify()
        self._watches.notify()

    def reads_settled(self, ready: Ready) -> None:
        self._reads.note(ready, self._not_leader())

    def snapshots_wanted(self, replicas: Sequence[ReplicaId]) -> None:
        """For followers behind the log's start: from there on they get the data itself."""
        snapshot = snapshot_of(self._log, self._ledger.states)
        for replica in replicas:
            self._node.send_snapshot(replica, snapshot)
        self._consensus.touch()

    def failed(self, error: Exception) -> None:
        self.stop(error)

    # What the writer tells

    def checkpoint_state(self) -> tuple[Callable[[], bytes], Offset]:
        state_offset = max(self.high_watermark, self._installed_offset)
        return self._ledger.settled_snapshot(), state_offset

    def before_reset(self) -> None:
        self._keeper.remove_state_snapshot()

    def written(self, number: int) -> None:
        if self._flush_timer is None and self.config.flush_policy is FlushPolicy.INTERVAL_UNSAFE:
            self._flush_timer = self._loop.call_later(self.config.flush_ms / 1000, self._flush)
        self._consensus.written(number)

    def write_failed(self, error: OSError) -> None:
        """The entries stay and are tried again; meanwhile somebody leads who can write, if there
        is anybody else. A sole voter keeps its leadership, so that what it has can be read."""
        logger.error("%s can't be written: %s", self.partition, error)
        self._backlog.remove(self._acks.refuse(self._not_leader()))
        self._watches.notify()
        self._make_room()

    def _make_room(self) -> None:
        if self._node.role is Role.LEADER and not self._is_sole_voter:
            self._node.resign()
            self._consensus.drain()

    def log_broken(self, error: Exception) -> Refused:
        self.stop(error)
        assert self._refusal is not None
        return Refused(*self._refusal)

    def _flush(self) -> None:
        self._flush_timer = None
        if self._refusal is None:
            self._writer.sync_soon()

    # From the exchange

    def step(self, message: Message) -> None:
        """Takes a message of another replica; raises PeerFault for what none should send."""
        if self._refusal is not None:
            return
        if isinstance(message, TimeoutNow) and self.failing_because is not None:
            return
        if self._refill.is_due:
            self._refill.note(message)
            if self.is_returning and isinstance(message, (VoteRequest, TimeoutNow)):
                return
        self._consensus.step(message)

    def _is_refilled(self) -> bool:
        # One that leads got all votes: nobody has more, or an operator gave up what is missing.
        return self.is_settled or self._refill.ends(self._applied_index, self.term)

    def _end_refill(self) -> None:
        self._refill.end()
        if self.is_returning:
            self.is_returning = False
            self._parts.hard_states.mark(self.key, is_gone=False)

    def _wait_to_be_refilled(self) -> None:
        """Nobody refills the only copy; but a log that lost its end may not know of the others,
        so they are given time to show themselves."""
        is_alone = (
            not self.is_returning
            and self._node.leader is None
            and self._is_sole_voter
            and not self._members.wants_others()
        )
        if is_alone and self._refill.waited_alone():
            logger.error("%s continues without what its only copy lost", self.partition)
            self._end_refill()
            self._node.campaign()
            self._consensus.touch()

    def tick(self) -> bool:
        """A unit of time passed. Says whether it needs no other one until it is announced: a leader
        without peers keeps its leadership whatever the time is, and a node may hold thousands."""
        if self._refusal is not None:
            return False
        # One that can't write does not stand for election, nor does one that came back.
        if self.failing_because is not None:
            self._make_room()
            return False
        if self._refill.is_due:
            self._wait_to_be_refilled()
            if self.is_returning or self._is_sole_voter:
                return False
        self._ticks += 1
        if self._node.tick():
            self._consensus.ticked()
        if self.is_leader:
            self._lead()
        elif self._eager_ticks > 0 or self._node.role is not Role.FOLLOWER:
            self._campaign_eagerly()
        return self.is_leader and not self.has_peers and not self._members.is_due

    def _lead(self) -> None:
        if self._ticks % TICKS_PER_SAMPLE == 0:
            self._sample()
        if self._members.is_due and self.is_settled and self._members.act():
            self._consensus.touch()

    def _sample(self) -> None:
        node = self._node
        statuses = node.replicas()
        if statuses:
            self._consensus.let_go(statuses)
        if not self._in_sync.sample(node.membership.voters, statuses, node.last_index):
            return
        self._parts.outbound.announce(self)
        if self._has_too_few_in_sync():
            detail = f"{self.partition} has too few replicas in sync"
            refused = Refused(Reason.NOT_ENOUGH_REPLICAS_AFTER_APPEND, detail)
            self._backlog.remove(self._acks.refuse(refused, self._applied_index, self.traffic))

    def _has_too_few_in_sync(self) -> bool:
        """As many as the topic asks for are enough, and so are all that there are (KIP-966)."""
        count = len(self._in_sync.members)
        # The topic's wish first: it is met by almost every append.
        return count < self.config.min_insync_replicas and count < len(self.membership.voters)

    def _campaign_eagerly(self) -> None:
        self._eager_ticks -= 1
        if self._node.term > 0 or self._node.leader is not None:
            self._eager_ticks = 0
        elif self._eager_ticks % EAGER_TICKS == 0:
            self._node.campaign()
            self._consensus.ticked()

    def heartbeat_received(self, sender: ReplicaId, term: Term) -> bool:
        return self._refusal is None and self._node.heartbeat_received(sender, term)

    def heartbeat_acknowledged(self, sender: ReplicaId, term: Term) -> None:
        if self._refusal is None and self._node.heartbeat_acknowledged(sender, term):
            self._consensus.ticked()

    def heartbeat_refused(self, sender: ReplicaId, term: Term) -> None:
        if self._refusal is None and self._node.heartbeat_refused(sender, term):
            self._consensus.ticked()

    def unreachable(self, node: BrokerId) -> None:
        """Messages to that node may have been lost."""
        if self._refusal is None:
            for replica in sorted(self._node.membership.members):
                if replica.node == node:
                    self._node.unreachable(replica)

    def leader_lost(self, node: BrokerId) -> None:
        """The process of that node is gone."""
        if self._refusal is not None:
            return
        self._node.leader_lost(node, turn=self.key.partition)
        self._consensus.ticked()
        if self.is_leader and self._in_sync.drop(node):
            self._parts.outbound.announce(self)

    # Leadership and members

    def on_leadership(self, callback: Callable[[], None]) -> Watch:
        """Calls back whenever term, role, leader or `is_settled` changed."""
        return self._leadership_watches.add(callback)

    def transfer(self, node: BrokerId) -> None:
        """Hands leadership to that node's replica as soon as it has everything."""
        self.check_leader()
        for replica in sorted(self._node.membership.voters):
            if replica.node == node and self._node.transfer(replica) is None:
                self._consensus.touch()
                return
        detail = f"node {node} can't take over {self.partition} now"
        raise Refused(Reason.INVALID_REQUEST, detail)

    def set_wanted(self, voters: Sequence[ReplicaId], learners: Sequence[ReplicaId] = ()) -> None:
        """Who should belong to the group, the preferred leader first; its leader sees to it."""
        if self._has_log:
            self._members.set_wanted(voters, learners)
            if self._members.is_due:
                # With its next tick, which one that rests would not get.
                self._parts.outbound.announce(self)

    @property
    def is_reconciled(self) -> bool:
        """Whether this leader's group has come to what was wanted."""
        return (
            self.is_settled
            and self._members.is_reconciled
            and self._consensus.membership_index <= self._applied_index
        )

    async def confirm(self) -> None:
        """Returns once it is sure that this replica leads now; raises Refused if it does not."""
        self.check_leader()
        done = self._reads.ask(self._loop)
        if self._node.read(done) is not None:
            done.cancel()
            raise self._not_leader()
        self._consensus.touch()
        await done
