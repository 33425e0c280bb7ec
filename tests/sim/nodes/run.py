"""One run of whole nodes: clients, administrators and faults at random; then healing, equality."""

from collections.abc import Iterator, Sequence
from random import Random

from penstock.cluster.topic import Topic
from penstock.cluster.topic_decisions import NewTopic
from penstock.model.ids import PartitionId
from penstock.records.record import Record
from penstock.replication.replica import Replica
from tests.sim.linearizability import Operation, Verdict, judge
from tests.sim.machine.bugs import bugs_fail
from tests.sim.machine.garbage import own_garbage_only
from tests.sim.nodes import letters
from tests.sim.nodes.admin import Administrator, only_looks, topics
from tests.sim.nodes.cluster import DATA, Cluster
from tests.sim.nodes.committer import Committer
from tests.sim.nodes.consumers import Team, TeamMember
from tests.sim.nodes.door_workers import DoorWorker
from tests.sim.nodes.equality import describe, unequal
from tests.sim.nodes.loose import LooseProducer
from tests.sim.nodes.members import GroupConsumer, WorkGroup
from tests.sim.nodes.node import SMALL
from tests.sim.nodes.onlooker import Onlooker
from tests.sim.nodes.partition import DataPartition
from tests.sim.nodes.queue_faults import QueueFaults
from tests.sim.nodes.queue_rules import QueueRules
from tests.sim.nodes.queues import GROUP, QUEUE_SETTINGS, Ledger, QueueWorker, initialize, look
from tests.sim.nodes.reader import Reader
from tests.sim.nodes.report import RunReport
from tests.sim.replicas.checks import Decoded, check_acknowledged, records_of
from tests.sim.replicas.clients import Producer
from tests.sim.replicas.history import History, require

HEALING_S_MAX = 180.0
WORK_S_MIN = 6.0
WORK_S_MAX = 60.0
# Where producers were told of nothing that is stored for so long, faults become rare, and then all
# is left in peace. If that does not help, something has to be repaired first, as at the end.
SLOW_S_MAX = 2.0
STUCK_S_MAX = 4.0
HOPELESS_S_MIN = 8.0
DATA_PARTITIONS = 2
GROUP_MEMBERS = 2
OTHERS = ("a",)
# That an administrator who waits for nothing asks for something at a step. Topics that come and go
# are most of the work of a run: more of them would show little, and cost other runs.
ADMINISTRATION_CHANCE = 0.7
# In a run with dead letters that are brought back, at every step.
REDRIVE_CHANCE = 0.4
# What the search for an order of the changes of topics may cost.
TRIES_MAX = 50_000


class Run(Cluster):
    def __init__(
        self,
        seed: int,
        operations: int,
        team_members: int = 0,
        queue_workers: int = 0,
        door_workers: int = 0,
    ) -> None:
        super().__init__(seed, SMALL | QUEUE_SETTINGS if queue_workers else SMALL)
        self.operations = operations
        self.letters = Random(f"letters of {seed}")
        self.redriving = Random(f"redrive runs of {seed}")
        self.has_letters = self.redrives = False
        self.dead_letters = self.histories_given_up = 0
        # How much was acknowledged, and when that was less for the last time.
        self._progress = 0, 0.0
        self.queue_workers = queue_workers
        # As many of them work through doors, by lease tokens.
        self.door_workers = door_workers
        self.workers: list[QueueWorker] = []
        self.rules = QueueRules(seed, DATA, GROUP, is_on=queue_workers > 0)
        self.ledger = Ledger((), self.rules)
        self.queue_faults = QueueFaults(seed, is_on=queue_workers > 0)
        self.administrators = [Administrator(self.world, self.nodes, OTHERS) for _ in range(3)]
        self.onlooker = Onlooker(self.world, self.nodes, OTHERS)
        self.committer = Committer(self.world, self.nodes, DATA, DATA_PARTITIONS)
        self.producers: list[Producer] = []
        self.producers_of: dict[PartitionId, list[Producer]] = {}
        self.readers: list[Reader] = []
        self.group = WorkGroup(DATA, DATA_PARTITIONS)
        self.team = Team(DATA, DATA_PARTITIONS)
        self.team_members = team_members
        self.loose: LooseProducer | None = None

    # The run

    def execute(self) -> RunReport:
        try:
            with (
                bugs_fail(self.world),
                self.ledger.counting_voids(),
                self.queue_faults.losing_changes(),
            ):
                return self._execute()
        except AssertionError as failure:
            for node in self.nodes:
                failure.add_note("\n  ".join([f"node {node.node}", *node.events.lines()]))
            raise
        finally:
            for node in self.nodes:
                node.crash(lost_power=False)

    def _execute(self) -> RunReport:
        for node in self.nodes:
            node.start()
        self._make_data_topic()
        enough, limit = self.world.now + WORK_S_MIN, self.world.now + WORK_S_MAX
        while self.world.now < limit and not (self._is_work_done() and self.world.now > enough):
            self.world.run_for(self.random.uniform(0.02, 0.3))
            for administrator in self.administrators:
                if self.random.random() < ADMINISTRATION_CHANCE:
                    administrator.act()
            self.committer.act()
            self.committer.look_in_doubt()
            for node in self.nodes:
                node.validate_groups()
                node.validate_queues()
            self.onlooker.act()
            self._read()
            self._redrive()
            self.rules.pause_some([node for node in self.nodes if node.is_responsive])
            idle_s = self._idle_s()
            if idle_s > HOPELESS_S_MIN:
                break
            if idle_s > STUCK_S_MAX:
                self._leave_in_peace()
            else:
                self._disturb_some(self.fault_chance / (1 if idle_s < SLOW_S_MAX else 4))
            self.rules.look_at_clocks(self.nodes)
            if self.has_letters:
                self.rules.look_for_letters(self.nodes)
        self._heal()
        self._check()
        return self._report()

    def _acknowledged(self) -> int:
        return sum(len(producer.acknowledged) for producer in self.producers)

    def _idle_s(self) -> float:
        """For how long nothing was acknowledged to those who wait for it."""
        acknowledged = self._acknowledged()
        if acknowledged != self._progress[0] or self._is_work_done():
            self._progress = acknowledged, self.world.now
        return self.world.now - self._progress[1]

    def _is_work_done(self) -> bool:
        is_loose_done = self.loose is None or self.loose.is_done
        return is_loose_done and all(producer.is_done for producer in self.producers)

    def _make_data_topic(self) -> None:
        """Without it there is nothing to do: faults begin afterwards."""
        ready = self.world.run_until(
            lambda: all(node.is_registered for node in self.nodes), HEALING_S_MAX
        )
        require(ready, f"the cluster did not form: {[node.refused for node in self.nodes]}")
        server, process = self.nodes[0].server, self.nodes[0].machine.process
        assert server is not None
        assert process is not None
        copies = {"min.insync.replicas": self.random.choice(("1", "1", "2", "3"))}
        new = NewTopic(name=DATA, partitions=DATA_PARTITIONS, configs=copies)
        creation = process.spawn(server.services.topics.create([new]))
        require(self.world.run_until(creation.done, 30.0), "no topic was made within 30 s")
        topic = creation.result()[DATA]
        require(isinstance(topic, Topic), f"no topic was made: {topic!r}")
        partitions = [
            DataPartition(self.world, self.nodes, key, self.histories.__getitem__)
            for key in topic.partition_ids()
        ]
        share = self.operations // (2 * DATA_PARTITIONS)
        for number in range(2 * DATA_PARTITIONS):
            self._add_producer(partitions[number % DATA_PARTITIONS], number + 1, share)
        self.loose = LooseProducer(partitions[0], DATA, self.operations // 10)
        # One reads from leaders, and one from the follower in its rack.
        keys = topic.partition_ids()
        for beside in (None, self.random.choice(self.nodes).node):
            self.readers.append(
                Reader(self.world, self.nodes, DATA, keys, self.histories.get, beside)
            )
        for number in range(GROUP_MEMBERS):
            GroupConsumer(self.world, self.nodes, self.group, number)
        for number in range(self.team_members):
            TeamMember(self.world, self.nodes, self.team, number)
        if self.queue_workers:
            self._add_workers(keys)

    def _add_workers(self, keys: Sequence[PartitionId]) -> None:
        """Some queues begin at the first record, others where the log ends when they are made."""
        self.ledger.keys = keys
        process = self.nodes[0].machine.process
        assert process is not None
        setting = process.spawn(self.rules.set_up(self.nodes[0], GROUP))
        require(self.world.run_until(setting.done, 30.0), "no queue was set within 30 s")
        setting.result()
        start = 0 if self.random.random() < 0.6 else -1
        making = process.spawn(initialize(self.nodes[0], self.ledger, start))
        require(self.world.run_until(making.done, 30.0), "no queue was made within 30 s")
        if start == 0:
            self.ledger.starts = dict.fromkeys(range(len(keys)), 0)
        self._enable_letters()
        for number in range(self.queue_workers):
            kind = DoorWorker if number < self.door_workers else QueueWorker
            self.workers.append(kind(self.world, self.nodes, self.ledger, number))

    def _enable_letters(self) -> None:
        """In most runs what is given up goes to a dead-letter topic."""
        process = self.nodes[0].machine.process
        assert process is not None
        if self.letters.random() < 0.8:
            enabling = process.spawn(letters.enable(self.nodes[0]))
            require(self.world.run_until(enabling.done, 30.0), "no group was set within 30 s")
            self.has_letters = enabling.result()
            self.redrives = self.has_letters and self.redriving.random() < 0.5

    def _redrive(self) -> None:
        nodes = [node for node in self.nodes if node.is_responsive]
        if nodes and self.redrives and self.redriving.random() < REDRIVE_CHANCE:
            node, limit = self.redriving.choice(nodes), self.redriving.choice((1, 3, 100))
            node.ask(letters.redrive(node, self.ledger, DATA, limit))

    def _add_producer(self, partition: DataPartition, number: int, batches: int) -> None:
        producer = Producer(
            partition, number, batches, repeats_keys=False, padding=0, dress=self._dress
        )
        partition.producers.append(producer)
        self.producers.append(producer)
        self.producers_of.setdefault(partition.partition, []).append(producer)

    def _dress(self, record: Record) -> Record:
        return self.rules.dress(record, self.world)

    def _look_at_the_group(self) -> None:
        nodes = [node for node in self.nodes if node.is_responsive]
        if nodes:
            node = self.random.choice(nodes)
            node.ask(self.group.look(node))
            if self.team_members:
                node.ask(self.team.look(node))
            if self.workers:
                node.ask(look(node, self.ledger))

    def _read(self) -> None:
        for reader in self.readers:
            reader.act()

    # Healing

    def _heal(self) -> None:
        self.switch.become_reliable()
        for node in self.nodes:
            node.machine.drive.steps_left = None
            node.machine.drive.empty_out()
            self._set_clock_right(node)
        if self.damaged is not None:
            self.damaged.crash(lost_power=False)
            self.damaged.repair()
            self.damaged.start()
        for worker in self.workers:
            worker.is_hurrying = True
        limit = self.world.now + HEALING_S_MAX
        while not self._is_equal():
            self._repair()
            for node in self.nodes:
                self._set_clock_right(node, self.rules.skew_at_end_ms)
            self.rules.look_at_clocks(self.nodes)
            self.rules.resume([node for node in self.nodes if node.is_responsive])
            self.world.run_for(0.1)
            self.committer.look()
            self._look_at_the_group()
            self._read()
            if self.world.now > limit:
                require(False, f"the cluster did not recover: {self._describe()}")

    def _repair(self) -> None:
        """What an operator would do: start what is down, and again what can't go on."""
        for node in self.nodes:
            is_stopped = any(each.stopped_because is not None for each in node.replicas())
            if node.is_up and (is_stopped or node.refused is not None):
                node.crash(lost_power=False)
                if node is self.damaged:
                    # No cut of its logs has helped.
                    node.machine.replace_drive()
        self._restart_all()

    def _groups(self) -> Iterator[tuple[PartitionId, list[Replica]]]:
        groups: dict[PartitionId, list[Replica]] = {}
        for node in self.nodes:
            for replica in node.replicas():
                groups.setdefault(replica.key, []).append(replica)
        yield from groups.items()

    def _is_equal(self) -> bool:
        return not self._unfinished()

    def _unfinished(self) -> str:
        """What is still to come, in one sentence; empty when all is well."""
        if not all(node.is_registered for node in self.nodes):
            return f"not registered: {[n.node for n in self.nodes if not n.is_registered]}"
        if any(administrator.is_waiting for administrator in self.administrators):
            return "an administrator waits"
        if not self._is_work_done():
            return "a producer is not done"
        states = [node.server.cluster for node in self.nodes if node.server is not None]
        if len({cluster.applied for cluster in states}) > 1:
            return f"metadata differs: {[cluster.applied for cluster in states]}"
        for key, replicas in self._groups():
            problem = unequal(replicas)
            if problem:
                return f"group {key}: {problem}"
        ends = self._ends()
        for reader in self.readers:
            if not reader.is_at_the_end(ends):
                return f"a consumer is at {reader.places} of {ends}"
        if not self.group.is_explained():
            return f"of a group this is found: {self.group.found}"
        if not self.team.is_explained():
            return f"of a group of the new protocol this is found: {self.team.found}"
        if self.committer.acknowledged and not self.committer.is_explained:
            return f"of the offsets without members this is found: {self.committer.found}"
        if self.has_letters and (problem := letters.on_the_way(self.nodes)):
            return problem
        return self.ledger.unfinished(ends) if self.workers else ""

    def _ends(self) -> dict[int, int]:
        return {
            key.partition: replicas[0].high_watermark
            for key, replicas in self._groups()
            if replicas[0].partition.topic == DATA
        }

    def _describe(self) -> str:
        lines = [self._unfinished()]
        for node in self.nodes:
            lines.append(f"node {node.node}: up {node.is_up}, {node.refused}, {node.id}")
            lines += [f"  {each.partition} {describe(each)}" for each in node.replicas()]
        return "\n  ".join(lines)

    # Checks

    def _check(self) -> None:
        for node in self.nodes:
            node.look_everywhere()
        self._check_records()
        self._check_metadata()
        self.states.check(self.nodes)
        if self.workers:
            self._note_expired()
        self.ledger.check_end(self._ends() if self.workers else {})
        if self.has_letters:
            self.dead_letters = letters.check_letters(
                self.ledger, DATA, self._replicas_of(letters.DLQ), self._replicas_of(DATA)
            )

    def _note_expired(self) -> None:
        for partition, replica in self._replicas_of(DATA).items():
            for record in letters.records_in(replica):
                self.ledger.note_expired(partition, record)

    def _replicas_of(self, topic: str) -> dict[int, Replica]:
        """One of each partition: they are equal."""
        return {
            key.partition: replicas[0]
            for key, replicas in self._groups()
            if replicas[0].partition.topic == topic
        }

    def _check_records(self) -> None:
        decoded = Decoded()
        for key, replicas in self._groups():
            producers = self.producers_of.get(key, [])
            for replica in replicas if producers else ():
                records = records_of(replica, decoded)
                for producer in producers:
                    check_acknowledged(producer, records, 0)
                if self.loose is not None and key.partition == 0:
                    self.loose.check(records)
                _check_read(self.histories[key], records)

    def _check_metadata(self) -> None:
        copies = set()
        for node in self.nodes:
            assert node.server is not None
            cluster = node.server.cluster
            copies.add(
                tuple(
                    sorted(
                        (topic.name, topic.topic_id, topic.partitions) for topic in cluster.topics()
                    )
                )
            )
        require(len(copies) == 1, f"nodes know different topics: {copies}")
        counts = {name: partitions for name, _, partitions in next(iter(copies))}
        history = [*self.onlooker.history]
        for administrator in self.administrators:
            history += administrator.history
        now = self.world.now
        for name in OTHERS:
            own = [done for done in history if done.call[1] == name]  # type: ignore[index]
            own.append(Operation(now, now, ("read", name, 0), counts.get(name, 0)))
            verdict = judge(own, topics, 0, only_looks, TRIES_MAX)
            require(
                verdict is not Verdict.UNEXPLAINED,
                f"no order explains what administrators saw of '{name}': {own}",
            )
            self.histories_given_up += verdict is Verdict.GIVEN_UP

    def _report(self) -> RunReport:
        histories = self.histories.values()
        return RunReport(
            seed=self.seed,
            steps=self.world.steps,
            seconds=round(self.world.now, 3),
            groups=len(histories),
            terms=sum(history.terms for history in histories),
            committed=sum(history.committed_index for history in histories),
            acknowledged=self._acknowledged(),
            changes_of_topics=sum(len(each.history) for each in self.administrators),
            commits_of_offsets=self.committer.acknowledged,
            deletions_of_offsets=self.committer.deletions,
            generations=self.group.generations,
            commits_of_members=self.group.acknowledged,
            fenced=self.group.fenced,
            returned=self.group.returned,
            commits_of_team=self.team.acknowledged,
            fenced_of_team=self.team.fenced,
            handed_over=self.team.handed_over,
            delivered=self.ledger.delivered,
            redelivered=self.ledger.redelivered,
            acked=self.ledger.acked,
            refused_acks=self.ledger.refused,
            dead_letters=self.dead_letters,
            brought_back=self.ledger.brought_back,
            delivered_later=self.rules.delayed,
            delivered_in_order=self.rules.ordered,
            expired=self.rules.expired,
            polls_of_paused=self.rules.polls_of_paused,
            read=sum(reader.records for reader in self.readers),
            read_from_followers=sum(reader.from_followers for reader in self.readers),
            fetched_in_sessions=sum(reader.incremental for reader in self.readers),
            stops=sum(node.stops for node in self.nodes),
            moves=self.moves,
            disks_replaced=self.disks_replaced,
            bits_flipped=self.bits_flipped,
            histories_given_up=self.histories_given_up,
        )


def _check_read(history: History, records: dict[int, bytes]) -> None:
    """What a consumer was given is there to stay."""
    for offset, value in history._read.items():
        found = records.get(offset)
        require(found == value, f"{value!r} was read at offset {offset}, and it holds {found!r}")


def run_seed(
    seed: int,
    operations: int = 100,
    team_members: int = 0,
    queue_workers: int = 0,
    door_workers: int = 0,
) -> RunReport:
    """The same seed gives the same run, and so the same report or the same failure."""
    with own_garbage_only():
        return Run(seed, operations, team_members, queue_workers, door_workers).execute()
