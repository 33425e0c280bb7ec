"""The life of one poisonous message, from its first lease to the copy that somebody processes at
last, with one node that dies at a chosen change of its disk.

Two records lie around the poisonous one. A worker acks those, and gives the poisonous one back
until its attempts are used up: it becomes a dead letter. Somebody brings it back, it dies again,
its log is cut, and somebody brings it back once more: now as a copy, which the worker acks. Anyone
who gets no answer asks again. One run dies after the first change of a disk, the next one after
the second, and so on: nothing of the life happens between two changes.
"""

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, NamedTuple
from unittest.mock import patch

from penstock.broker.letter_carrier import Carrier
from penstock.broker.queues import AckBatch, AckType, AcquireQuery, QueueOffset, WantedShare
from penstock.cluster.config_decisions import Edit, GroupResource, Operation
from penstock.cluster.dead_letter_settings import TOPIC_NAME
from penstock.cluster.share_settings import DELIVERY_COUNT_LIMIT
from penstock.cluster.topic import Topic
from penstock.cluster.topic_decisions import NewTopic
from penstock.model.errors import Refused
from penstock.model.ids import BrokerId, MemberId, PartitionId
from penstock.queues.dead_letters import REDRIVEN_FOR, REDRIVES
from penstock.queues.letters import Plan, Sender
from penstock.queues.state import Queue
from penstock.raft.settings import RaftSettings
from penstock.records.batch import build_batch, decode_records
from penstock.records.record import Record
from penstock.replication.replica import Replica
from tests.sim.machine.bugs import bugs_fail
from tests.sim.machine.clock import EPOCH_MS
from tests.sim.machine.garbage import own_garbage_only
from tests.sim.machine.process import Machine
from tests.sim.machine.wire import Switch
from tests.sim.machine.world import World
from tests.sim.nodes.letters import DLQ, FoundLetter, found_letter, on_the_way, records_in
from tests.sim.nodes.node import SMALL, SimulatedNode, peer_endpoint
from tests.sim.nodes.queues import GROUP, QUEUE_SETTINGS, bytes_of
from tests.sim.replicas.history import History, require

TOPIC: Final = "data"
ATTEMPTS: Final = 2
# The poisonous record, those around it, and the copy in the end.
POISON: Final = 1
GOOD: Final = (0, 2)
COPY: Final = 3
VALUES: Final = (b"before", b"poison", b"behind")
# Two lives as a record of the log; the third is that of its copy.
LIVES: Final = 2

READY_S_MAX: Final = 60.0
ANSWER_S_MAX: Final = 5.0
LIFE_S_MAX: Final = 60.0
PAUSE_S: Final = 0.05
# How long a node that died stays down: with three of them long enough for others to lead.
DOWN_S: Final = {1: 0.1, 3: 3.0}


class Death(NamedTuple):
    """Which node dies, and after how many changes of its disk since the life began."""

    node: int
    steps: int
    lost_power: bool = False


@dataclass(slots=True)
class Seen:
    """What the worker has heard."""

    # Of the poisonous record: the attempts of each of its lives, and of its copy.
    attempts: list[list[int]] = field(default_factory=lambda: [[]])
    acked: set[int] = field(default_factory=set)
    # Polls and acknowledgements without an answer.
    lost: int = 0
    # How far it had come when a node died, as somebody knew it.
    died_at: str = ""
    has_died: bool = False
    # How often each disk changed.
    steps: dict[int, int] = field(default_factory=dict)


class PoisonedLife:
    def __init__(
        self, nodes: int, death: Death | None = None, *, loses_letters_topic: bool = False
    ) -> None:
        self._world = World(Random(1))
        # Whether somebody deletes the dead-letter topic when the first letter is about to leave.
        self._loses_letters_topic = loses_letters_topic
        self._switch = Switch(self._world)
        self._death = death
        self._histories: dict[PartitionId, History] = {}
        listed = {number: peer_endpoint(number) for number in map(BrokerId, range(1, nodes + 1))}
        self._nodes = {number: self._make_node(number, listed) for number in listed}
        self._topic: Topic | None = None
        self._members = 0
        self.seen = Seen()

    def _make_node(self, number: BrokerId, listed: dict[BrokerId, Any]) -> SimulatedNode:
        node = SimulatedNode(
            Machine(self._world, self._switch, number),
            cluster=listed,
            join=None,
            raft=RaftSettings(heartbeats_by_host=True),
            snapshot_records=10,
            history_of=self._history_of,
            broker=SMALL | QUEUE_SETTINGS,
        )
        node.before_end = self._died
        return node

    def _history_of(self, replica: Replica) -> History:
        return self._histories.setdefault(replica.key, History(compacts=False))

    def _died(self, node: SimulatedNode) -> None:
        if not self.seen.has_died and self._topic is not None:
            self.seen.has_died = True
            self.seen.died_at = self._place()
            self._world.after(DOWN_S[len(self._nodes)], node.start)

    def execute(self) -> Seen:
        with own_garbage_only(), bugs_fail(self._world), self._before_sending():
            try:
                self._prepare()
                self._arm()
                self._live()
                self._check_end()
            finally:
                for node in self._nodes.values():
                    self.seen.steps[node.node] = node.machine.drive.steps
                    self.seen.has_died = True
                    node.crash(lost_power=False)
        return self.seen

    @contextmanager
    def _before_sending(self) -> Iterator[None]:
        send = Carrier._send

        async def lose_topic_once(
            carrier: Carrier, plan: Plan, sender: Sender, batch: bytes
        ) -> None:
            if self._loses_letters_topic:
                self._loses_letters_topic = False
                await self._topics().delete([DLQ])
            await send(carrier, plan, sender, batch)

        with patch.object(Carrier, "_send", lose_topic_once):
            yield

    def _topics(self) -> Any:
        return next(_services(node).topics for node in self._nodes.values() if node.is_responsive)

    # Asking

    def _ask(self, make: Callable[[SimulatedNode], Coroutine[Any, Any, Any]]) -> Any:
        """None if nobody answers, or only with a refusal."""
        node = self._some_node()
        process = None if node is None else node.machine.process
        if node is None or process is None:
            self._world.run_for(PAUSE_S)
            return None
        task = process.spawn(make(node))
        self._world.run_until(
            lambda: bool(task.done()) or node.machine.process is not process, ANSWER_S_MAX
        )
        if not task.done() or task.cancelled() or isinstance(task.exception(), Refused):
            self._world.run_for(PAUSE_S)
            return None
        return task.result()

    def _ask_until(self, make: Callable[[SimulatedNode], Coroutine[Any, Any, Any]]) -> Any:
        limit = self._world.now + LIFE_S_MAX
        while (answer := self._ask(make)) is None:
            require(self._world.now < limit, "nobody answers")
        return answer

    def _some_node(self) -> SimulatedNode | None:
        """Who leads the queue, if that is known."""
        nodes = [node for node in self._nodes.values() if node.is_responsive]
        if self._topic is None:
            return nodes[0] if nodes else None
        (key,) = self._topic.partition_ids()
        return next((node for node in nodes if node.leads(key)), None)

    # Before the life begins

    def _prepare(self) -> None:
        self._switch.become_reliable()
        for node in self._nodes.values():
            node.machine.slow_disk_chance = 0.0
            node.start()
        is_ready = self._world.run_until(
            lambda: all(node.is_registered for node in self._nodes.values()), READY_S_MAX
        )
        require(is_ready, f"{[node.refused for node in self._nodes.values()]}")
        new = NewTopic(name=TOPIC, partitions=1, configs={})
        made = self._ask_until(lambda node: _services(node).topics.create([new]))[TOPIC]
        assert isinstance(made, Topic), made
        self._topic = made
        settings = {TOPIC_NAME: DLQ, DELIVERY_COUNT_LIMIT: str(ATTEMPTS)}
        edits = [Edit(name, Operation.SET, value) for name, value in settings.items()]
        change = [(GroupResource(GROUP), edits)]
        (refused,) = self._ask_until(lambda node: _services(node).configs.edit(change))
        require(not isinstance(refused, Refused), f"the group can't be set: {refused}")
        starts = {made.topic_id: {0: 0}}
        self._ask_until(lambda node: _done(_services(node).queues.initialize(GROUP, starts)))
        records = [Record(value=value, timestamp_ms=EPOCH_MS) for value in VALUES]
        batch = build_batch(records, producer_id=1, producer_epoch=0, base_sequence=0)
        self._ask_until(lambda node: self._publish(node, batch))

    async def _publish(self, node: SimulatedNode, batch: bytes) -> bool:
        services = _services(node)
        deadline = services.clock.monotonic() + ANSWER_S_MAX
        return await services.forwarding.publish(self._topic_id, 0, batch, deadline) == 0

    @property
    def _topic_id(self) -> Any:
        assert self._topic is not None
        return self._topic.topic_id

    def _arm(self) -> None:
        for node in self._nodes.values():
            node.machine.drive.steps = 0
        if self._death is not None:
            machine = self._nodes[BrokerId(self._death.node)].machine
            machine.crash_in_a_write(self._death.steps, lost_power=self._death.lost_power)

    # The life

    def _live(self) -> None:
        for life in range(LIVES):
            if life:
                self.seen.attempts.append([])
                self._bring_back()
            self._work_until_done(AckType.RELEASE)
            self._check_letters(life + 1)
        self._ask_until(lambda node: _done(self._cut_log(node)))
        self.seen.attempts.append([])
        self._bring_back()
        self._work_until_done(AckType.ACCEPT)

    def _bring_back(self) -> None:
        """Until nothing is left of it to do."""
        self._ask_until(lambda node: _services(node).queues.redrive(GROUP, TOPIC, 100))

    async def _cut_log(self, node: SimulatedNode) -> None:
        replica = node.replica(self._key())
        assert replica is not None
        await replica.delete_records(len(VALUES))

    def _key(self) -> PartitionId:
        assert self._topic is not None
        (key,) = self._topic.partition_ids()
        return key

    def _work_until_done(self, word: AckType) -> None:
        limit = self._world.now + LIFE_S_MAX
        while not self._is_done():
            self._work(word)
            require(self._world.now < limit, f"the queue is stuck: {self._place()}, {self.seen}")

    def _is_done(self) -> bool:
        offset = self._ask(self._describe)
        is_done = offset is not None and offset.lag == offset.dying_count == 0
        return is_done and not on_the_way(list(self._nodes.values()))

    async def _describe(self, node: SimulatedNode) -> QueueOffset | None:
        found = await _services(node).queues.describe_offsets(GROUP, {self._topic_id: [0]})
        (offset,) = found.values()
        return offset if isinstance(offset, QueueOffset) else None

    def _work(self, word: AckType) -> None:
        """One poll, and what there is to say about it."""
        self._members += 1
        member = MemberId(f"member-{self._members}")
        answer = self._ask(lambda node: self._poll(node, member))
        if answer is None:
            self.seen.lost += 1
            return
        said: dict[int, AckType] = {}
        for record, attempt in answer:
            said[record.offset] = word if record.offset in (POISON, COPY) else AckType.ACCEPT
            self._heard(record, attempt)
        if said and not self._ask(lambda node: self._say(node, member, said)):
            self.seen.lost += 1

    def _heard(self, record: Record, attempt: int) -> None:
        seen, offset = self.seen, record.offset
        require(offset not in seen.acked, f"{offset} was acked, and is delivered: {seen}")
        if offset in (POISON, COPY):
            require(record.value == b"poison", f"{offset} is {record}")
            is_copy = len(seen.attempts) > LIVES
            require(is_copy == (offset == COPY), f"{offset} is delivered: {seen}")
            seen.attempts[-1].append(attempt)

    async def _poll(
        self, node: SimulatedNode, member: MemberId, wait_ms: int = 100
    ) -> list[tuple[Record, int]] | None:
        query = AcquireQuery(
            group_id=GROUP,
            member_id=member,
            wanted=[WantedShare(topic_id=self._topic_id, partition=0, bytes_max=4096)],
            wait_ms_max=wait_ms,
            bytes_min=1,
            bytes_max=4096,
            records_max=10,
            batch_size=10,
            is_exact=True,
        )
        (answer,) = await _services(node).queues.acquire(query)
        if answer.detail:
            return None
        content = bytes_of(answer)
        answer.release()
        records = {}
        for record in decode_records(content) if content else ():
            records[record.offset] = record
        return [
            (records[offset], attempt)
            for first, last, attempt in answer.ranges
            for offset in range(first, last + 1)
        ]

    async def _say(self, node: SimulatedNode, member: MemberId, said: dict[int, AckType]) -> bool:
        place = (self._topic_id, 0)
        batches = [AckBatch(first=at, last=at, types=(kind,)) for at, kind in said.items()]
        outcomes = await _services(node).queues.acknowledge(GROUP, member, {place: batches})
        if outcomes[place] is not None:
            return False
        self.seen.acked |= {at for at, kind in said.items() if kind is AckType.ACCEPT}
        return True

    # What is true

    def _stored(self) -> Queue | None:
        """As the share coordinator knows it."""
        running = [node for node in self._nodes.values() if node.is_up and node.server is not None]
        found = (queue for node in running for queue in _services(node).queues.stored())
        return max(found, key=lambda queue: (queue.term, queue.version), default=None)

    def _place(self) -> str:
        """How far the message has come, as far as somebody has that on its disk."""
        queue = self._stored()
        if queue is None:
            return "unknown"
        machine = queue.machine
        poison = [each for each in machine.ranges() if each.first <= POISON <= each.last]
        copy = [each for each in machine.ranges() if each.first <= COPY <= each.last]
        state = (copy or poison or [None])[0]
        words = ["none" if state is None else f"{state.state.name} {state.attempts}"]
        words += ["copy"] if copy else []
        letters = machine.letters
        words.append(f"sent {letters.sent_count}, back {letters.redriven_count}")
        words += ["planned"] if letters.plan is not None else []
        words += ["copying"] if letters.copies is not None else []
        words.append(f"{self._end_of(DLQ)} letters, {self._end_of(TOPIC)} records")
        return ", ".join(words)

    def _end_of(self, topic: str) -> int:
        return max((replica.log_end_offset for replica in self._leaders(topic)), default=0)

    def _records(self, topic: str) -> list[Record]:
        has_leader = self._world.run_until(lambda: bool(self._leaders(topic)), READY_S_MAX)
        require(has_leader, f"nobody leads {topic}")
        return [record for replica in self._leaders(topic) for record in records_in(replica)]

    def _leaders(self, topic: str) -> list[Replica]:
        return [
            replica
            for node in self._nodes.values()
            for replica in node.replicas()
            if replica.partition.topic == topic and replica.is_leader and replica.is_settled
        ]

    def _check_letters(self, count: int) -> None:
        """One for each life that is over, with what is true of it."""
        letters = [found_letter(record, TOPIC, 0) for record in self._records(DLQ)]
        require(len(letters) == count, f"there are {len(letters)} letters: {self.seen}")
        for life, letter in enumerate(letters):
            self._check_letter(life, letter)

    def _check_letter(self, life: int, letter: FoundLetter) -> None:
        is_right = (letter.offset, letter.attempts, letter.redrives) == (POISON, ATTEMPTS, life)
        is_same = letter.record.value == b"poison"
        require(is_right and is_same, f"the letter of life {life} is {letter}")
        heard = self.seen.attempts[life]
        in_order = heard == sorted(set(heard)) and set(heard) <= set(range(1, ATTEMPTS + 1))
        missing = ATTEMPTS - len(heard)
        require(in_order and missing <= self.seen.lost, f"life {life} was heard of: {self.seen}")

    def _check_end(self) -> None:
        self._check_letters(LIVES)
        copies = self._records(TOPIC)
        require([each.offset for each in copies] == [COPY], f"the log holds {copies}")
        said = dict(copies[0].headers)
        is_right = said == {REDRIVEN_FOR: GROUP.encode(), REDRIVES: str(LIVES).encode()}
        require(is_right and copies[0].value == b"poison", f"the copy is {copies[0]}")
        heard = self.seen.attempts[-1]
        require(heard == sorted(set(heard)) and bool(heard), f"of the copy: {self.seen}")
        stored = self._stored()
        assert stored is not None
        is_all_done = stored.machine.start == COPY + 1
        require(is_all_done, f"the queue starts at {stored.machine.start}")
        letters = stored.machine.letters
        counted = (letters.sent_count, letters.redriven_count)
        require(counted == (LIVES, LIVES), f"sent and brought back: {counted}")
        require(
            self.seen.lost == 0 or self.seen.has_died, f"answers are lost for nothing: {self.seen}"
        )


def lives_with_a_death(
    nodes: int, node: int, *, lost_power: bool = False, loses_letters_topic: bool = False
) -> Iterator[Seen]:
    """One life for every change of that node's disk, in which it dies at this change."""
    options = {"loses_letters_topic": loses_letters_topic}
    changes = PoisonedLife(nodes, **options).execute().steps[node]
    for steps in range(changes):
        try:
            yield PoisonedLife(nodes, Death(node, steps, lost_power), **options).execute()
        except AssertionError as failure:
            failure.add_note(f"node {node} of {nodes} died after {steps} changes of its disk")
            raise


def _services(node: SimulatedNode) -> Any:
    assert node.server is not None
    return node.server.services


async def _done(work: Coroutine[Any, Any, Any]) -> bool:
    await work
    return True
