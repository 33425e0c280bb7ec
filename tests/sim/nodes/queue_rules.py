"""What a simulated queue is set to besides leases: records for later, a backoff, order per key,
records that expire, pauses.

No record is delivered before a wall clock has shown its time, on some node and at some moment: the
clocks of nodes are set now and then. A record of a key is delivered only when all earlier ones of
that key are done, or were tried so often that they may be given up. A record whose time to live was
over by the clock of its leader is not delivered, and none is given up for its age before some clock
has shown its end. A poll finds nothing if its node knew all the time that the queue is paused.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import NamedTuple

from penstock.broker.queues import Queues
from penstock.cluster.config_decisions import Edit, GroupResource
from penstock.cluster.config_decisions import Operation as Op
from penstock.cluster.dead_letter_settings import TOPIC_NAME
from penstock.cluster.queue_settings import (
    DELAY_ENABLE,
    EXPIRY_DEAD_LETTERS_ENABLE,
    EXPIRY_ENABLE,
    EXPIRY_MS,
    KEY_ORDER_ENABLE,
    PAUSED_TOPICS,
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
EXPIRE_AFTER = "penstock.expire.after"
EXPIRY_MS_MAX = 2_000
# Longer than any clock goes wrong.
NEVER_MS = 10 * 24 * 3_600_000
PAUSE_CHANCE = 0.1
# A topic that is not that of the queue.
OTHER = "other"


class Moment(NamedTuple):
    """What a node knows of a queue's settings and of the time."""

    configs: object
    is_paused: bool
    skew_ms: int
    now_ms: int


class QueueRules:
    def __init__(self, seed: int, topic: str, group_id: GroupId, *, is_on: bool) -> None:
        # Of its own, so that it changes nothing else.
        self._random = Random(f"rules of {seed}")
        self.has_delays = is_on and self._random.random() < 0.5
        self.has_key_order = is_on and self._random.random() < 0.5
        self.has_backoff = is_on and self._random.random() < 0.5
        # The latest time that a node's clock has shown.
        # Until when a leader may not have heard that there is a dead-letter topic, by any clock.
        self.letters_known_ms = float("inf")
        self.shown_ms = 0
        self.delayed = self.ordered = 0
        self._topic = topic
        self._group_id = group_id
        self._expiry = Random(f"expiry of {seed}")
        self.has_expiry = is_on and self._expiry.random() < 0.3
        self.group_expiry_ms = self._expiry.choice((0, NEVER_MS))
        self.keeps_expired = self._expiry.random() < 0.5
        self._pausing = Random(f"pauses of {seed}")
        self.has_pauses = is_on and self._pausing.random() < 0.3
        self.pauses = self.polls_of_paused = self.expired = 0

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
        if self.has_expiry and self._expiry.random() < 0.5:
            # All timestamps are of the beginning of the run.
            age_ms = int(world.now * 1000)
            after_ms = self._expiry.choice(
                (NEVER_MS, age_ms + self._expiry.randint(1, EXPIRY_MS_MAX))
            )
            record = replace(record, headers=(*record.headers, (EXPIRE_AFTER, b"%d" % after_ms)))
        return record

    async def set_up(self, node: SimulatedNode, group_id: GroupId) -> None:
        configs = {
            DELAY_ENABLE: str(self.has_delays).lower(),
            KEY_ORDER_ENABLE: str(self.has_key_order).lower(),
        }
        if self.has_backoff:
            first_ms, max_ms = BACKOFF_MS
            configs |= {RETRY_BACKOFF_MS: str(first_ms), RETRY_BACKOFF_MAX_MS: str(max_ms)}
        if self.has_expiry:
            configs |= {
                EXPIRY_ENABLE: "true",
                EXPIRY_MS: str(self.group_expiry_ms),
                EXPIRY_DEAD_LETTERS_ENABLE: str(self.keeps_expired).lower(),
            }
        edits = [Edit(name, Op.SET, value) for name, value in configs.items()]
        assert node.server is not None
        (refused,) = await node.server.services.configs.edit([(GroupResource(group_id), edits)])
        require(not isinstance(refused, Refused), f"the queue can't be set: {refused}")

    # Pauses

    def pause_some(self, nodes: Sequence[SimulatedNode]) -> None:
        """Somebody pauses this queue, another one, both or none."""
        if nodes and self.has_pauses and self._pausing.random() < PAUSE_CHANCE:
            topics = self._pausing.choice(("", OTHER, self._topic, f"{OTHER},{self._topic}"))
            node = self._pausing.choice(nodes)
            node.ask(self._pause(node, topics))
            self.pauses += self._topic in topics

    def resume(self, nodes: Sequence[SimulatedNode]) -> None:
        """What is paused in the end is another queue."""
        if nodes and self.has_pauses:
            server = nodes[0].server
            assert server is not None
            if server.cluster.group_setting(self._group_id, PAUSED_TOPICS) != OTHER:
                nodes[0].ask(self._pause(nodes[0], OTHER))

    async def _pause(self, node: SimulatedNode, topics: str) -> None:
        assert node.server is not None
        edits = [Edit(PAUSED_TOPICS, Op.SET, topics)]
        with suppress(Refused):
            await node.server.services.configs.edit([(GroupResource(self._group_id), edits)])

    def moment(self, queues: Queues) -> Moment:
        cluster = queues._cluster
        paused = cluster.group_setting(self._group_id, PAUSED_TOPICS).split(",")
        clock = queues._clock
        return Moment(
            cluster.group_configs.get(self._group_id),
            self._topic in paused,
            clock.skew_ms,  # type: ignore[attr-defined]
            clock.now_ms(),
        )

    def check_poll(
        self, partition: int, before: Moment, after: Moment, records: Sequence[Record]
    ) -> None:
        """What a node answers that has known all this since it was asked."""
        if before.is_paused and before.configs is after.configs:
            self.polls_of_paused += 1
            require(not records, f"partition {partition} is paused, and {records} are delivered")
        if before.skew_ms == after.skew_ms:
            for record in records:
                require(
                    self.expires_ms(record) > before.now_ms,
                    f"{partition}:{record.offset} expired before {before.now_ms}: {record}",
                )

    # Expiry

    def expires_ms(self, record: Record) -> float:
        after = dict(record.headers).get(EXPIRE_AFTER)
        after_ms = int(after) if after is not None else self.group_expiry_ms
        is_ever = self.has_expiry and after_ms > 0
        return record.timestamp_ms + after_ms if is_ever else float("inf")

    def may_be_expired(self, record: Record) -> bool:
        """Whether a leader may have given it up for its age."""
        return self.expires_ms(record) <= self.shown_ms

    def may_lack_letter(self, record: Record) -> bool:
        """Of one that was given up for its age: whether it may be nowhere else."""
        return not self.keeps_expired or self.expires_ms(record) <= self.letters_known_ms

    def look_for_letters(self, nodes: Iterable[SimulatedNode]) -> None:
        if self.letters_known_ms == float("inf") and all(map(self._knows_letters, nodes)):
            self.letters_known_ms = self.shown_ms

    def _knows_letters(self, node: SimulatedNode) -> bool:
        server = node.server
        return server is not None and server.cluster.group_setting(self._group_id, TOPIC_NAME) != ""

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
