"""Simulated clients: they ask whoever says that it leads, wait, give up, and ask again."""

import asyncio
from collections.abc import Callable, Sequence
from random import Random

from penstock.model.errors import Refused
from penstock.records.batch import build_batch, crc_matches, decode_records, parse_header
from penstock.records.record import Record
from tests.sim.machine.clock import EPOCH_MS
from tests.sim.machine.world import World
from tests.sim.replicas.history import History, require
from tests.sim.replicas.node import SimulatedNode

ANSWER_S_MAX = 3.0
RETRY_S = 0.05
READ_BYTES_MAX = 4096

Nodes = Callable[[], Sequence[SimulatedNode]]


def some_leader(nodes: Sequence[SimulatedNode], random: Random) -> SimulatedNode | None:
    """Whoever takes itself for the leader, even one that is cut off; else anybody."""
    leading = [node for node in nodes if node.leading()]
    running = [node for node in nodes if node.is_up and node.replica is not None]
    choices = leading or running
    return random.choice(choices) if choices else None


class Producer:
    """An idempotent producer: one batch at a time, sent again until somebody acknowledges it."""

    def __init__(
        self, world: World, nodes: Nodes, producer_id: int, batches: int, *, repeats_keys: bool
    ) -> None:
        self._world = world
        self._nodes = nodes
        self.id = producer_id
        self._repeats_keys = repeats_keys
        self._batches_left = batches
        self._sequence = 0
        self._batch = b""
        self._values: list[bytes] = []
        self._attempt = 0
        # By value: the offset that was acknowledged.
        self.acknowledged: dict[bytes, int] = {}
        self.refusals = 0
        self._next()

    @property
    def is_done(self) -> bool:
        return not self._values

    def key_of(self, value: bytes) -> bytes:
        if not self._repeats_keys:
            return value
        number = int(value.split(b":")[1])
        return b"%d:%d" % (self.id, number % 3)

    def offsets_by_key(self) -> list[tuple[int, bytes]]:
        """Of all that was acknowledged, in the order of the log."""
        return sorted((offset, self.key_of(value)) for value, offset in self.acknowledged.items())

    def _next(self) -> None:
        if self._batches_left == 0:
            self._values = []
            return
        self._batches_left -= 1
        count = self._world.random.choice((1, 1, 2, 5))
        numbers = range(self._sequence, self._sequence + count)
        self._values = [b"%d:%d" % (self.id, number) for number in numbers]
        records = [
            Record(key=self.key_of(value), value=value, timestamp_ms=EPOCH_MS + number)
            for value, number in zip(self._values, numbers, strict=True)
        ]
        self._batch = build_batch(
            records, producer_id=self.id, producer_epoch=0, base_sequence=self._sequence
        )
        self._sequence += count
        self._world.after(self._world.random.uniform(0.0, 0.15), self._ask)

    def _ask(self) -> None:
        if self.is_done:
            return
        self._attempt += 1
        attempt = self._attempt
        node = some_leader(self._nodes(), self._world.random)
        if node is None:
            self._ask_later()
            return
        process = node.machine.process
        assert process is not None
        process.spawn(self._append(node, attempt))
        self._world.after(ANSWER_S_MAX, lambda: self._answered(attempt, None))

    async def _append(self, node: SimulatedNode, attempt: int) -> None:
        """Runs on the node; the answer travels back."""
        assert node.replica is not None
        try:
            appended = node.replica.append(self._batch)
            if appended.done is not None:
                await appended.done
        except Refused as refused:
            self._tell(attempt, refused)
        else:
            self._tell(attempt, appended.base_offset)

    def _tell(self, attempt: int, outcome: int | Refused) -> None:
        delay = self._world.random.uniform(0.0001, 0.005)
        self._world.after(delay, lambda: self._answered(attempt, outcome))

    def _answered(self, attempt: int, outcome: int | Refused | None) -> None:
        if attempt != self._attempt or self.is_done:
            return
        self._attempt += 1
        if isinstance(outcome, int):
            for number, value in enumerate(self._values):
                self.acknowledged[value] = outcome + number
            self._next()
        else:
            self.refusals += 1
            self._ask_later()

    def _ask_later(self) -> None:
        self._world.after(RETRY_S * self._world.random.uniform(0.5, 2), self._ask)


class Consumer:
    """Reads from the beginning, of whoever leads; what it saw once must stay true."""

    def __init__(self, world: World, nodes: Nodes, history: History) -> None:
        self._world = world
        self._nodes = nodes
        self._history = history
        self.position = 0
        self.records = 0

    def look(self) -> None:
        node = some_leader(self._nodes(), self._world.random)
        if node is not None and node.machine.process is not None:
            node.machine.process.spawn(self._read(node))

    async def _read(self, node: SimulatedNode) -> None:
        replica = node.replica
        assert replica is not None
        try:
            found = replica.read(self.position, READ_BYTES_MAX)
        except Refused:
            # Not its leader, or the records are gone: begins anew where the log begins.
            self.position = max(self.position, replica.log_start_offset)
            return
        if found is None:
            return
        content = found.read()
        found.release()
        await asyncio.sleep(0)
        self._take(content)

    def _take(self, content: bytes) -> None:
        while content:
            header = parse_header(content)
            if not crc_matches(content, 0, header):
                # A client asks again then, and somebody else.
                return
            require(not header.is_own, "a consumer was given one of Raft's own entries")
            for record in decode_records(content) if header.record_count else ():
                require(record.value is not None, "a record lost its value")
                assert record.value is not None
                self._history.on_read(record.offset, record.value)
                self.records += 1
            self.position = max(self.position, header.next_offset)
            content = content[header.size :]
