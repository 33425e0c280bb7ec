"""A simulated producer that waits for the leader alone (acks=1) and sends nothing twice.

What it was told is stored may be lost with that leader. What is kept is in its order, once, and
where it was said to be.
"""

from collections.abc import Mapping

from penstock.broker.services import Services
from penstock.model.errors import Refused
from penstock.model.ids import NO_TOPIC_ID, TopicName
from penstock.records.batch import build_batch
from penstock.records.record import Record
from tests.sim.machine.clock import EPOCH_MS
from tests.sim.nodes.partition import DataPartition
from tests.sim.replicas.history import require

ANSWER_S_MAX = 3.0
BETWEEN_S_MAX = 0.4
NAME = b"loose"


class LooseProducer:
    """One batch of one record at a time."""

    def __init__(self, partition: DataPartition, topic: str, batches: int) -> None:
        self._world = partition.world
        self._partition = partition
        self._topic = TopicName(topic)
        self._left = batches
        self._number = 0
        # By value: the offset that the leader gave it.
        self.stored: dict[bytes, int] = {}
        self._send_later()

    @property
    def is_done(self) -> bool:
        return not self._left

    def _send_later(self) -> None:
        self._world.after(self._world.random.uniform(0.0, BETWEEN_S_MAX), self._send)

    def _send(self) -> None:
        node = self._partition.leader()
        if node is None:
            self._send_later()
            return
        self._number += 1
        assert node.server is not None
        node.ask(self._append(node.server.services, self._number))
        self._world.after(ANSWER_S_MAX, self._over, self._number)

    async def _append(self, services: Services, number: int) -> None:
        if number != self._number or self.is_done:
            # It took too long to get here, and the client has gone.
            return
        value = b"%s:%d" % (NAME, number)
        batch = build_batch([Record(key=value, value=value, timestamp_ms=EPOCH_MS + number)])
        try:
            index = self._partition.partition.partition
            replica = services.produce.find(self._topic, NO_TOPIC_ID, index)
            appended = services.produce.append(replica, batch, acks_all=False)
            if appended.stored is not None:
                await appended.stored
        except Refused:
            pass
        else:
            self.stored[value] = appended.base_offset
        self._world.after(0.001, self._over, number)

    def _over(self, number: int) -> None:
        if number != self._number or self.is_done:
            return
        self._number += 1
        self._left -= 1
        if not self.is_done:
            self._send_later()

    def check(self, records: Mapping[int, bytes]) -> None:
        """Against all that its partition holds, by offset."""
        kept = [(offset, value) for offset, value in sorted(records.items()) if _is_own(value)]
        numbers = [int(value.split(b":")[1]) for _, value in kept]
        require(numbers == sorted(set(numbers)), f"of {NAME!r} this is kept: {numbers}")
        for offset, value in kept:
            said = self.stored.get(value, offset)
            require(said == offset, f"{value!r} was said to be at {said} and is at {offset}")


def _is_own(value: bytes) -> bool:
    return value.startswith(NAME + b":")
