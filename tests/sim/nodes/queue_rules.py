"""What a simulated queue is set to besides leases: records for later, a backoff, order per key.

No record is delivered before a wall clock has shown its time, on some node and at some moment: the
clocks of nodes are set now and then. A record of a key is delivered only when all earlier ones of
that key are done, or were tried so often that they may be given up.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from random import Random

from penstock.cluster.config_decisions import Edit, GroupResource
from penstock.cluster.config_decisions import Operation as Op
from penstock.cluster.queue_settings import (
    DELAY_ENABLE,
    KEY_ORDER_ENABLE,
    RETRY_BACKOFF_MAX_MS,
    RETRY_BACKOFF_MS,
)
from penstock.model.errors import Refused
from penstock.model.ids import GroupId
from penstock.records.record import Record
from tests.sim.machine.clock import EPOCH_MS
from tests.sim.machine.world import World
from tests.sim.nodes.node import SimulatedNode
from tests.sim.replicas.history import require

KEYS = 5
DELAY_MS_MAX = 3_000
BACKOFF_MS = (100, 1_000)
# Beyond all delays, however far a clock was ahead when they were decided.
LATER_MS = 12 * 3_600_000
AT = "penstock.deliver.at"


class QueueRules:
    def __init__(self, seed: int, *, is_on: bool) -> None:
        # Of its own, so that it changes nothing else.
        self._random = Random(f"rules of {seed}")
        self.has_delays = is_on and self._random.random() < 0.5
        self.has_key_order = is_on and self._random.random() < 0.5
        self.has_backoff = is_on and self._random.random() < 0.5
        # The latest time that a node's clock has shown.
        self.shown_ms = 0
        self.delayed = self.ordered = 0

    @property
    def skew_at_end_ms(self) -> int:
        """By which clocks have to go on in the end, so that nothing waits any more."""
        return LATER_MS if self.has_delays or self.has_backoff else 0

    def dress(self, record: Record, world: World) -> Record:
        """The same record with a key that others have too, and perhaps for later."""
        if self.has_key_order and record.value is not None:
            number = int(record.value.split(b":")[1])
            record = replace(record, key=b"%d" % (number % KEYS))
        if self.has_delays and self._random.random() < 0.3:
            now_ms = EPOCH_MS + int(world.now * 1000)
            due_ms = now_ms + self._random.randint(1, DELAY_MS_MAX)
            record = replace(record, headers=((AT, b"%d" % due_ms),))
        return record

    async def set_up(self, node: SimulatedNode, group_id: GroupId) -> None:
        configs = {
            DELAY_ENABLE: str(self.has_delays).lower(),
            KEY_ORDER_ENABLE: str(self.has_key_order).lower(),
        }
        if self.has_backoff:
            first_ms, max_ms = BACKOFF_MS
            configs |= {RETRY_BACKOFF_MS: str(first_ms), RETRY_BACKOFF_MAX_MS: str(max_ms)}
        edits = [Edit(name, Op.SET, value) for name, value in configs.items()]
        assert node.server is not None
        (refused,) = await node.server.services.configs.edit([(GroupResource(group_id), edits)])
        require(not isinstance(refused, Refused), f"the queue can't be set: {refused}")

    def look_at_clocks(self, nodes: Iterable[SimulatedNode]) -> None:
        clocks = (node.machine.process.clock for node in nodes if node.machine.process)
        self.shown_ms = max([self.shown_ms, *(clock.now_ms() for clock in clocks)])

    def check_due(self, place: str, record: Record) -> None:
        text = dict(record.headers).get(AT)
        if self.has_delays and text is not None:
            self.delayed += 1
            require(
                int(text) <= self.shown_ms,
                f"{place} is due at {text.decode()}, and no clock has shown more than "
                f"{self.shown_ms}",
            )


class Delivered:
    """When a record was delivered for the first time, and when it may have been done."""

    __slots__ = ("given_at", "key", "may_be_over_at")

    def __init__(self, key: bytes | None, given_at: float) -> None:
        self.key = key
        self.given_at = given_at
        self.may_be_over_at = float("inf")


def check_order(partition: int, records: Sequence[tuple[int, Delivered]]) -> int:
    """Of records that were delivered, in the order of their offsets; says how many had to wait."""
    by_key: defaultdict[bytes, list[tuple[int, Delivered]]] = defaultdict(list)
    for offset, each in records:
        if each.key is not None:
            by_key[each.key].append((offset, each))
    waited = 0
    for key, of_key in by_key.items():
        over_at, before = 0.0, -1
        for offset, each in of_key:
            require(
                each.given_at >= over_at,
                f"{partition}:{offset} of key {key!r} was delivered at {each.given_at}, and "
                f"{partition}:{before} was not done before {over_at}",
            )
            waited += before >= 0
            if each.may_be_over_at >= over_at:
                over_at, before = each.may_be_over_at, offset
    return waited
