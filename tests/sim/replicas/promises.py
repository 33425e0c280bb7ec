"""Checks every promise that leaves a node against what its disk would keep if power failed now."""

from collections.abc import Sequence
from pathlib import Path

from penstock.model.ids import PartitionId
from penstock.model.topic_config import TopicConfig
from penstock.raft.entries import HardState
from penstock.raft.messages import AppendRequest, AppendResponse, Message, VoteRequest, VoteResponse
from penstock.replication.exchange import Exchange
from penstock.replication.store import _hard_state
from penstock.storage.data_directory import DataDirectory
from penstock.storage.hard_states import HardStates
from penstock.storage.log import Log
from penstock.storage.open_files import OpenFiles
from tests.sim.machine.drive import Drive
from tests.sim.machine.process import Process
from tests.sim.replicas.history import require
from tests.unit.storage.fault_file_system import FaultFileSystem, Inode

# Reading a whole log back for every acknowledgement would take most of a run's time.
ACKNOWLEDGEMENT_CHANCE = 0.01
FIRST_CHANCE = 0.3


def durable_content(drive: Drive, path: Path) -> bytes:
    """What is in the file for sure."""
    found = drive._durable.get(str(path))
    require(found is not None, "the file of terms and votes is not durable")
    assert found is not None
    return bytes(found.durable)


def hard_states_in(content: bytes, path: Path) -> HardStates:
    """What a node would find in the file if it started with it."""
    alone = FaultFileSystem()
    alone._entries = dict.fromkeys(map(str, path.parents))
    alone._entries[str(path)] = Inode(content)
    return HardStates.open(path, file_system=alone)


class Promises:
    def __init__(self, process: Process, directory: DataDirectory, config: TopicConfig) -> None:
        self._process = process
        self._directory = directory
        self._config = config
        # What the file of terms and votes had in it when it was looked at last, and what that says.
        self._content: bytes | None = None
        self._hard_states: HardStates | None = None
        # The terms that are known to be on disk.
        self._terms: dict[PartitionId, int] = {}
        # Of which partitions something was acknowledged.
        self._acknowledged: set[PartitionId] = set()

    def check(self, key: PartitionId, message: Message) -> None:
        kind = type(message)
        # Most messages are of this kind, and it promises nothing.
        if kind is AppendRequest or self._process.drive.is_damaged:
            return
        if isinstance(message, VoteResponse) and message.granted and not message.pre:
            stored = self.hard_state(key)
            require(
                stored.term > message.term or stored == (message.term, message.to),
                f"{message.sender} promised its vote to {message.to} before it was on disk",
            )
        elif isinstance(message, VoteRequest) and not message.pre:
            require(
                self.hard_state(key).term >= message.term,
                f"{message.sender} campaigns in term {message.term} before that is on disk",
            )
        elif isinstance(message, AppendResponse):
            self._check_term(key, message)
            self._check_acknowledgement(key, message)

    def hard_state(self, key: PartitionId) -> HardState:
        """Term and vote as the disk has them for sure."""
        path = self._directory.hard_states_path
        content = durable_content(self._process.drive, path)
        if self._hard_states is None or content != self._content:
            self._content, self._hard_states = content, hard_states_in(content, path)
        return _hard_state(self._hard_states.get(key))

    def _check_term(self, key: PartitionId, message: AppendResponse) -> None:
        # What was on disk once stays there.
        if self._terms.get(key, -1) < message.term:
            self._terms[key] = self.hard_state(key).term
            require(
                self._terms[key] >= message.term,
                f"{message.sender} follows in term {message.term} before that is on disk",
            )

    def _check_acknowledgement(self, key: PartitionId, message: AppendResponse) -> None:
        random = self._process.random
        # What recovery found counts as much as what was written since.
        chance = ACKNOWLEDGEMENT_CHANCE if key in self._acknowledged else FIRST_CHANCE
        if random.random() >= chance:
            return
        self._acknowledged.add(key)
        found = self._process.drive.after_power_loss(random.getrandbits(32))
        log = Log.open(
            self._directory.partition_directory(*key),
            config=self._config,
            file_system=found,
            open_files=OpenFiles(found, 100),
            clock=self._process.clock,
            on_batch=lambda _: None,
        )
        require(
            log.last_index >= message.match_index,
            f"{message.sender} acknowledged index {message.match_index} and would keep "
            f"{log.last_index}",
        )


class CheckedExchange(Exchange):
    """Lets nothing out that is not true yet."""

    promises: Promises

    def send(self, key: PartitionId, messages: Sequence[Message]) -> None:
        for message in messages:
            self.promises.check(key, message)
        super().send(key, messages)
