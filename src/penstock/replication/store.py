"""Makes, opens and removes the replicas of a node: the disk side of `broker/partitions`.

The blocking work runs in worker threads, many partitions to a job, since a thousand jobs would cost
more than their work.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from os.path import join
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from penstock.model.clock import Clock
from penstock.model.errors import StorageDamaged
from penstock.model.ids import (
    BrokerId,
    DirectoryId,
    PartitionId,
    ReplicaId,
    Term,
    TopicId,
    TopicPartition,
)
from penstock.model.limits import Limits
from penstock.model.topic_config import TopicConfig
from penstock.observe.node_counters import NodeCounters
from penstock.raft.entries import HardState
from penstock.raft.membership import Membership
from penstock.raft.settings import RaftSettings
from penstock.records.batch import BatchHeader
from penstock.replication.batch_buffers import BatchBuffers
from penstock.replication.cold_entries import FollowerReads
from penstock.replication.entry_codec import decode_membership, encode_membership
from penstock.replication.hard_state_writer import NO_VOTE, HardStateWriter, stored
from penstock.replication.keeper import RETURNING, STATE_SNAPSHOT
from penstock.replication.opening import OpenedLog
from penstock.replication.outbound import Outbound
from penstock.replication.pressure import Pressure
from penstock.replication.producer_ledger import ProducerLedger
from penstock.replication.recent_entries import RecentEntries
from penstock.replication.replica import Replica
from penstock.replication.replica_parts import ReplicaParts
from penstock.replication.throttle import NodeThrottle
from penstock.replication.write_side import WriteSide
from penstock.storage.data_directory import DataDirectory
from penstock.storage.file_system import FileSystem, WholeDisk
from penstock.storage.hard_states import HardStates, StoredHardState
from penstock.storage.log import NO_DOUBT, Log, LogBase
from penstock.storage.open_files import OpenFiles

# Partitions that one worker job makes or opens before it reports back.
PARTITIONS_PER_JOB = 256

Opened = OpenedLog | StorageDamaged | OSError
Founders = Mapping[int, Sequence[ReplicaId]]


class _Place(NamedTuple):
    """One replica that is to be made or opened."""

    partition: TopicPartition
    key: PartitionId
    path: Path
    config: TopicConfig
    founders: Sequence[ReplicaId]
    # What is known of the group's terms and votes here; None if nothing ever was.
    known: StoredHardState | None

    @property
    def is_known(self) -> bool:
        """Whether the group has a log here."""
        return _is_known(self.known)


def _is_known(state: StoredHardState | None) -> bool:
    return state is not None and not state.is_gone and not state.is_unsure


class ReplicaStore:
    """Knows where a partition is and turns it into a replica."""

    def __init__(
        self,
        *,
        directory: DataDirectory,
        file_system: FileSystem,
        open_files: OpenFiles,
        clock: Clock,
        executor: Executor,
        background: Executor,
        write_side: WriteSide,
        limits: Limits,
        own: ReplicaId,
        outbound: Outbound,
        hard_states: HardStates,
        random_below: Callable[[int], int],
        raft_settings: RaftSettings,
        makers: Executor | None = None,
        counters: NodeCounters | None = None,
    ) -> None:
        """`makers` make and open logs; without them that is done by `executor`, as all the rest."""
        self.pressure = Pressure(limits)
        self.throttle = NodeThrottle()
        self._directory = directory
        self._file_system = file_system
        self._open_files = open_files
        self._clock = clock
        self._executor = executor
        self._background = background
        self._makers = makers or executor
        # Opening a log is many short calls of the system: threads that do it at the same time spend
        # a third of it on handing the interpreter to each other. Syncs still wait together.
        self._opening = Lock()
        self._own = own
        self._write_side = write_side
        self.soon = write_side.soon
        self._hard_states = HardStateWriter(hard_states, write_side)
        self._parts = ReplicaParts(
            own=own,
            former=frozenset(ReplicaId(own.node, each) for each in directory.former_ids),
            clock=clock,
            executor=executor,
            background=background,
            write_side=write_side,
            file_system=file_system,
            pressure=self.pressure,
            buffers=BatchBuffers(),
            recent=RecentEntries(),
            follower_reads=FollowerReads(executor, outbound.has_room),
            throttle=self.throttle,
            unflushed_bytes_max=limits.unflushed_bytes_per_partition_max,
            outbound=outbound,
            hard_states=self._hard_states,
            random_below=random_below,
            raft_settings=raft_settings,
            counters=counters,
        )

    @property
    def disk_waiting_s(self) -> float:
        return self._write_side.waiting_s()

    def tick(self) -> None:
        """A unit of time passed; comes before the replicas hear of it."""
        self._write_side.tick()
        self.throttle.tick()
        self._hard_states.check_deadline()

    async def create(
        self,
        partitions: Sequence[TopicPartition],
        topic_id: TopicId,
        config: TopicConfig,
        founders: Founders,
    ) -> list[Replica]:
        """All of them, durable, or an OSError and none.

        A log that an earlier attempt left behind is opened: it may hold acknowledged records. If
        it is damaged, its replica is there, but stopped.
        """
        places = self._places(partitions, topic_id, config, founders)
        outcomes = await self._make_or_open(places)
        for outcome in outcomes:
            if isinstance(outcome, OSError):
                await self._close_logs(outcomes)
                raise outcome
        return self._replicas(places, outcomes)

    async def open(
        self,
        partitions: Sequence[TopicPartition],
        topic_id: TopicId,
        config: TopicConfig,
        founders: Founders,
    ) -> list[Replica]:
        """All of them; one whose log is damaged or can't be made is there, but stopped."""
        places = self._places(partitions, topic_id, config, founders)
        return self._replicas(places, await self._make_or_open(places))

    async def open_metadata(
        self,
        partition: TopicPartition,
        topic_id: TopicId,
        config: TopicConfig,
        founders: Sequence[ReplicaId],
    ) -> Replica:
        """The metadata log: made on the first start of this directory, opened on later ones."""
        key = PartitionId(topic_id, partition.partition)
        place = _Place(
            partition,
            key,
            self._directory.metadata_directory,
            config,
            founders,
            self._hard_states.get(key),
        )
        return self._replicas([place], await self._make_or_open([place]))[0]

    def was_here(self, key: PartitionId) -> bool:
        """Whether the group has a log here that was not given up."""
        return _is_known(self._hard_states.get(key))

    async def remove_topic(self, topic_id: TopicId) -> None:
        self._hard_states.forget_topic(topic_id)
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._background, self._directory.remove_topic, topic_id)

    async def remove_partition(self, key: PartitionId) -> None:
        """The replica moved away. Its vote stays: it must not vote twice if it comes back."""
        done, settle = _waiting()
        self._hard_states.mark(key, is_gone=True, done=settle)
        await done
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(
            self._background, self._directory.remove_partition, key.topic_id, key.partition
        )

    async def close(self) -> None:
        """After all replicas: waits until every term and vote is durable."""
        await self._hard_states.close()

    # Places

    def _places(
        self,
        partitions: Sequence[TopicPartition],
        topic_id: TopicId,
        config: TopicConfig,
        founders: Founders,
    ) -> list[_Place]:
        places = []
        topic = self._directory.topic_directory(topic_id)
        for partition in partitions:
            key = PartitionId(topic_id, partition.partition)
            path = topic / str(partition.partition)
            known = self._hard_states.get(key)
            places.append(
                _Place(partition, key, path, config, founders[partition.partition], known)
            )
        return places

    def _replicas(self, places: Sequence[_Place], outcomes: Sequence[Opened]) -> list[Replica]:
        return [
            Replica(
                partition=place.partition,
                topic_id=place.key.topic_id,
                config=place.config,
                opened=outcome,
                parts=self._parts,
            )
            for place, outcome in zip(places, outcomes, strict=True)
        ]

    async def _make_or_open(self, places: Sequence[_Place]) -> list[Opened]:
        outcomes = await self._in_jobs(places)
        await self._put_all(
            [
                (place.key, stored(outcome.hard_state))
                for place, outcome in zip(places, outcomes, strict=True)
                if isinstance(outcome, OpenedLog) and (place.known is None or place.known.is_unsure)
            ]
        )
        return outcomes

    async def _put_all(self, states: Sequence[tuple[PartitionId, StoredHardState]]) -> None:
        """From here on these groups are known: a log that is missing later is damage."""
        if not states:
            return
        done, settle = _waiting()
        for key, state in states:
            self._hard_states.put(key, state, settle if key == states[-1][0] else None)
        await done

    async def _in_jobs(self, places: Sequence[_Place]) -> list[Opened]:
        loop = asyncio.get_running_loop()

        jobs = [
            loop.run_in_executor(
                self._makers, self._make_or_open_some, places[start : start + PARTITIONS_PER_JOB]
            )
            for start in range(0, len(places), PARTITIONS_PER_JOB)
        ]
        return [outcome for outcomes in await asyncio.gather(*jobs) for outcome in outcomes]

    async def _close_logs(self, outcomes: Sequence[Opened]) -> None:
        def close() -> None:
            for outcome in outcomes:
                if isinstance(outcome, OpenedLog):
                    outcome.log.close()

        await asyncio.get_running_loop().run_in_executor(self._executor, close)

    # In worker threads

    def _make_or_open_some(self, places: Sequence[_Place]) -> list[Opened]:
        disk = self._file_system.whole_disk(self._directory.path, len(places))
        try:
            made = self._make_at_once(places, disk)
            with self._opening if _are_known(places) else contextlib.nullcontext():
                outcomes = [
                    made.get(place.key) or self._make_or_open_one(place) for place in places
                ]
            outcomes = _with_synced_tails(outcomes, disk)
        finally:
            if disk is not None:
                disk.close()
        return self._lasting(places, outcomes)

    def _lasting(self, places: Sequence[_Place], outcomes: list[Opened]) -> list[Opened]:
        """Before groups become known here: once they are, a log that is missing is damage."""
        if _are_known(places):
            return outcomes
        try:
            for parent in {place.path.parent: None for place in places if not place.is_known}:
                self._file_system.sync_directory(parent)
            self._directory.sync_topics()
        except OSError as error:
            for outcome in outcomes:
                if isinstance(outcome, OpenedLog):
                    outcome.log.close()
            return [error] * len(outcomes)
        return outcomes

    def _make_at_once(
        self, places: Sequence[_Place], disk: WholeDisk | None
    ) -> dict[PartitionId, OpenedLog]:
        """Those that are surely new, with a few syncs for all; none of them if that fails."""
        new = [place for place in places if disk is not None and self._is_new(place)]
        try:
            logs = self._create(new, disk=disk)
        except (StorageDamaged, OSError):
            # Each by itself will say what is wrong with it.
            return {}
        return {
            place.key: self._opened(place, log, ProducerLedger())
            for place, log in zip(new, logs, strict=True)
        }

    def _is_new(self, place: _Place) -> bool:
        """Whether it was never here, for all that is known."""
        return (
            place.known is None
            and not self._forgets(place)
            and not Log.exists(place.path, file_system=self._file_system)
        )

    def _make_or_open_one(self, place: _Place) -> Opened:
        try:
            if Log.exists(place.path, file_system=self._file_system):
                if not place.is_known:
                    Log.sync_names(place.path, file_system=self._file_system)
                log, ledger = self._open(place)
            elif place.is_known:
                return StorageDamaged(str(place.path), 0, "the log is missing")
            else:
                log, ledger = self._make(place), ProducerLedger()
        except (StorageDamaged, OSError) as error:
            return error
        return self._opened(place, log, ledger)

    def _opened(self, place: _Place, log: Log, ledger: ProducerLedger) -> OpenedLog:
        hard_state = _hard_state(place.known)
        is_returning = self._is_returning(place)
        is_new = log.last_index == 0 and hard_state.term == 0 and not is_returning
        return OpenedLog(
            log,
            ledger,
            hard_state,
            place.founders,
            leads_first=is_new and place.founders[0] == self._own,
            is_returning=is_returning,
        )

    def _is_returning(self, place: _Place) -> bool:
        is_marked = self._file_system.exists(join(place.path, RETURNING))
        return is_marked or (place.known is not None and place.known.is_gone)

    def _forgets(self, place: _Place) -> bool:
        """Where terms and votes were lost, nobody knows whether the replica was here before; surely
        not if it is among the founders under the id that it has now."""
        return bool(self._parts.former) and self._own not in place.founders

    def _make(self, place: _Place) -> Log:
        founders = frozenset(place.founders)
        if place.known is not None or self._forgets(place):
            # One that comes back must not take itself for what it was when the group was founded,
            # nor for what the first entries say that it was once.
            founders = frozenset()
            self._file_system.make_directory(place.path)
            self._file_system.write_atomically(place.path / RETURNING, b"")
        (log,) = self._create([place], founders)
        return log

    def _create(
        self,
        places: Sequence[_Place],
        founders: frozenset[ReplicaId] | None = None,
        disk: WholeDisk | None = None,
    ) -> list[Log]:
        """Each with the founders of its place, or with these."""
        if not places:
            return []
        wanted = [
            (place.path, _base(frozenset(place.founders) if founders is None else founders))
            for place in places
        ]
        return Log.create(
            wanted,
            config=places[0].config,
            file_system=self._file_system,
            open_files=self._open_files,
            clock=self._clock,
            disk=disk,
        )

    def _open(self, place: _Place) -> tuple[Log, ProducerLedger]:
        # The checkpoint's state is known only once the log is open, but the batches after it are
        # seen while it opens.
        newer: list[BatchHeader] = []

        def on_batch(header: BatchHeader) -> None:
            if header.producer_id >= 0:
                newer.append(header)

        log = Log.open(
            place.path,
            config=place.config,
            file_system=self._file_system,
            open_files=self._open_files,
            clock=self._clock,
            on_batch=on_batch,
            is_shared=lambda membership: self._is_shared(place, membership),
            syncs_tail=False,
        )
        if log.doubt != NO_DOUBT:
            # A state that was built from what is missing would look right again once the log has
            # grown past it. It only saves time.
            with contextlib.suppress(FileNotFoundError):
                self._file_system.remove(place.path / STATE_SNAPSHOT)
        ledger = ProducerLedger()
        ledger.restore(log.state)
        opened_ms = self._clock.now_ms()
        for header in newer:
            ledger.record(header, header.base_offset, opened_ms)
        return log, ledger

    def _is_shared(self, place: _Place, membership: bytes) -> bool:
        """Whether others hold copies of a log that ends with this membership."""
        members = set(place.founders)
        if membership:
            members = set(decode_membership(membership, may_be_empty=True).members)
        return bool(members - {self._own} - self._parts.former)


def _are_known(places: Sequence[_Place]) -> bool:
    return all(place.is_known for place in places)


def _waiting() -> tuple[asyncio.Future[None], Callable[[Exception | None], None]]:
    """A future, and what settles it once something is durable or can't be."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def settle(error: Exception | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    return done, settle


def _base(founders: frozenset[ReplicaId]) -> LogBase:
    return LogBase(membership=encode_membership(Membership(founders)))


def _with_synced_tails(outcomes: list[Opened], disk: WholeDisk | None) -> list[Opened]:
    """None of the logs is used before what it recovered is on disk for good."""
    opened = [each for each in outcomes if isinstance(each, OpenedLog)]
    errors = Log.sync_tails([each.log for each in opened], disk)
    failed = {id(each): error for each, error in zip(opened, errors, strict=True) if error}
    for each in opened:
        if id(each) in failed:
            each.log.close()
    return [failed.get(id(each), each) for each in outcomes]


def _hard_state(known: StoredHardState | None) -> HardState:
    if known is None:
        return HardState()
    vote = None
    if known.vote_node != NO_VOTE:
        vote = ReplicaId(BrokerId(known.vote_node), DirectoryId(known.vote_directory))
    return HardState(Term(known.term), vote)
