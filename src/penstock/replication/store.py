"""Makes, opens and removes the replicas of a node: the disk side of `broker/partitions`.

The blocking work runs in worker threads, many partitions to a job, since a thousand jobs would cost
more than their work.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from pathlib import Path

from penstock.model.clock import Clock
from penstock.model.errors import StorageDamaged
from penstock.model.ids import Term, TopicId, TopicPartition
from penstock.model.limits import Limits
from penstock.model.topic_config import TopicConfig
from penstock.records.batch import BatchHeader
from penstock.replication.batch_buffers import BatchBuffers
from penstock.replication.pressure import Pressure
from penstock.replication.producer_states import ProducerStates
from penstock.replication.replica import Replica, ReplicaParts
from penstock.storage.data_directory import DataDirectory
from penstock.storage.file_system import FileSystem
from penstock.storage.log import Log
from penstock.storage.open_files import OpenFiles

# Partitions that one worker job makes or opens before it reports back.
PARTITIONS_PER_JOB = 32

Opened = tuple[Log, ProducerStates] | StorageDamaged | OSError


class ReplicaStore:
    """Knows where a partition lies and turns it into a replica."""

    def __init__(
        self,
        *,
        directory: DataDirectory,
        file_system: FileSystem,
        open_files: OpenFiles,
        clock: Clock,
        executor: Executor,
        background: Executor,
        limits: Limits,
        term: Term,
    ) -> None:
        self.pressure = Pressure(limits)
        self._directory = directory
        self._file_system = file_system
        self._open_files = open_files
        self._clock = clock
        self._executor = executor
        self._background = background
        self._term = term
        self._parts = ReplicaParts(
            clock=clock,
            executor=executor,
            background=background,
            pressure=self.pressure,
            buffers=BatchBuffers(),
            unflushed_bytes_max=limits.unflushed_bytes_per_partition_max,
        )

    async def create(
        self, partitions: Sequence[TopicPartition], topic_id: TopicId, config: TopicConfig
    ) -> list[Replica]:
        """All of them, durable, or an OSError or StorageDamaged and none.

        A log that an earlier attempt left behind is opened: it may hold acknowledged records.
        """
        outcomes = await self._in_jobs(
            partitions, lambda partition: self._create_or_open(partition, topic_id, config)
        )
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                await self._close_logs(outcomes)
                raise outcome
        return self._replicas(partitions, topic_id, config, outcomes)

    async def open(
        self, partitions: Sequence[TopicPartition], topic_id: TopicId, config: TopicConfig
    ) -> list[Replica]:
        """All of them; one whose log is damaged is there, but stopped."""
        outcomes = await self._in_jobs(
            partitions,
            lambda partition: self._open(self._place(partition, topic_id), config),
        )
        return self._replicas(partitions, topic_id, config, outcomes)

    async def open_metadata(
        self, partition: TopicPartition, topic_id: TopicId, config: TopicConfig
    ) -> Replica:
        """The metadata log: made on the first start of this directory, opened on later ones."""
        loop = asyncio.get_running_loop()
        place = self._directory.metadata_directory
        outcome = await loop.run_in_executor(self._executor, self._make_or_open, place, config)
        return self._replicas([partition], topic_id, config, [outcome])[0]

    async def remove_topic(self, topic_id: TopicId) -> None:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._background, self._directory.remove_topic, topic_id)

    def _replicas(
        self,
        partitions: Sequence[TopicPartition],
        topic_id: TopicId,
        config: TopicConfig,
        outcomes: Sequence[Opened],
    ) -> list[Replica]:
        return [
            Replica(
                partition=partition,
                topic_id=topic_id,
                term=self._term,
                config=config,
                opened=outcome,
                parts=self._parts,
            )
            for partition, outcome in zip(partitions, outcomes, strict=True)
        ]

    def _place(self, partition: TopicPartition, topic_id: TopicId) -> Path:
        return self._directory.partition_directory(topic_id, partition.partition)

    async def _in_jobs(
        self, partitions: Sequence[TopicPartition], work: Callable[[TopicPartition], Opened]
    ) -> list[Opened]:
        loop = asyncio.get_running_loop()

        def run(some: Sequence[TopicPartition]) -> list[Opened]:
            return [work(partition) for partition in some]

        jobs = [
            loop.run_in_executor(
                self._executor, run, partitions[start : start + PARTITIONS_PER_JOB]
            )
            for start in range(0, len(partitions), PARTITIONS_PER_JOB)
        ]
        return [outcome for outcomes in await asyncio.gather(*jobs) for outcome in outcomes]

    async def _close_logs(self, outcomes: Sequence[Opened]) -> None:
        def close() -> None:
            for outcome in outcomes:
                if isinstance(outcome, tuple):
                    outcome[0].close()

        await asyncio.get_running_loop().run_in_executor(self._executor, close)

    # In worker threads

    def _create_or_open(
        self, partition: TopicPartition, topic_id: TopicId, config: TopicConfig
    ) -> Opened:
        return self._make_or_open(self._place(partition, topic_id), config)

    def _make_or_open(self, place: Path, config: TopicConfig) -> Opened:
        try:
            if Log.exists(place, file_system=self._file_system):
                return self._open(place, config)
            log = Log.create(
                place,
                config=config,
                file_system=self._file_system,
                open_files=self._open_files,
                clock=self._clock,
            )
        except (StorageDamaged, OSError) as error:
            return error
        return log, ProducerStates()

    def _open(self, place: Path, config: TopicConfig) -> Opened:
        # The checkpoint's state is known only once the log is open, but the batches after it are
        # seen while it opens: they go to states of their own, which are laid on top then.
        newer = ProducerStates()
        opened_ms = self._clock.now_ms()

        def on_batch(header: BatchHeader) -> None:
            if header.producer_id >= 0:
                newer.record(header, header.base_offset, opened_ms)

        try:
            log = Log.open(
                place,
                config=config,
                file_system=self._file_system,
                open_files=self._open_files,
                clock=self._clock,
                on_batch=on_batch,
                term_max=self._term,
            )
        except (StorageDamaged, OSError) as error:
            return error
        states = ProducerStates()
        states.restore(log.state)
        states.lay_on_top(newer)
        return log, states
