"""Collects a node's metrics for a scrape, a few milliseconds of the event loop at a time.

What the node counts while it works is in `NodeCounters`; the rest is looked up here. Where there
are more topics, groups, queues or clients than have series of their own, it says how many are left
out. Lags come from the node that coordinates a group, which asks the leaders of partitions that it
has no copy of.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from penstock import __version__
from penstock.broker.doors import calls
from penstock.broker.doors.desk import Desk, Method
from penstock.model.clock import Clock
from penstock.model.errors import Reason, Refused, StorageDamaged
from penstock.model.ids import BrokerId, PartitionId, PartitionIndex, TopicName
from penstock.observe.families import Sample
from penstock.observe.node_counters import NodeCounters
from penstock.observe.process_facts import process_samples
from penstock.records.batch import HEADER_SIZE, parse_header
from penstock.records.errors import CorruptBatch
from penstock.replication.replica import Replica

# Series of groups and of queues; and clients whose pushed values are shown, with their bytes.
GROUP_SERIES_MAX: Final = 500
QUEUE_SERIES_MAX: Final = 500
CLIENTS_MAX: Final = 100
CLIENT_BYTES_MAX: Final = 1024 * 1024
# Of a group's topic, the partitions with the most records behind are asked for the age of these:
# each may cost a read from the disk.
TIMES_PER_SERIES_MAX: Final = 4
# Offsets that one node is asked for at a time, and how long it may take.
PLACES_MAX: Final = 10_000
PLACES_S_MAX: Final = 1.0
# How long a collection may keep the event loop before others have their turn.
TURN_S_MAX: Final = 0.002
UNKNOWN: Final = -1
NOT_FOUND: Final = (UNKNOWN, UNKNOWN)

Samples = dict[str, list[Sample]]
Series = tuple[str, str]
# End and time by topic, partition and offset.
FoundAt = dict[tuple[str, int, int], tuple[int, int]]


class Turns:
    """Lets others have their turn of the event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Of CPU time: what other programs took of the machine is not this one's doing.
        self.longest_s = 0.0
        self.begin()

    async def pause(self) -> None:
        """To be called often: it waits only if this turn has lasted long enough."""
        if self._clock.monotonic() - self._since > TURN_S_MAX:
            self.end()
            await asyncio.sleep(0)
            self.begin()

    def begin(self) -> None:
        """Others had their turn."""
        self._since = self._clock.monotonic()
        self._cpu_since = time.thread_time()

    def end(self) -> None:
        self.longest_s = max(self.longest_s, time.thread_time() - self._cpu_since)


@dataclass(slots=True)
class Behind:
    """How far behind its partitions a group is on a topic, or a queue."""

    offsets: dict[int, int]
    # Records behind the offsets that are done all the same.
    done: int = 0
    leased: int = 0
    delayed: int = 0
    dying: int = 0
    records: int = 0
    oldest_ms: int | None = None
    # Partitions by how many records are behind.
    by_partition: dict[int, int] = field(default_factory=dict)


async def collect_metrics(desk: Desk, _: calls.CollectMetrics) -> calls.NodeMetrics:
    counters = desk.services.counters
    if counters is None:
        raise Refused(Reason.POLICY_VIOLATION, "Metrics are turned off on this node.")
    collection = _Collection(desk, counters)
    return await collection.run()


class _Collection:
    """One scrape."""

    def __init__(self, desk: Desk, counters: NodeCounters) -> None:
        self._desk = desk
        self._services = desk.services
        self._counters = counters
        self._clock = desk.services.clock
        self._turns = Turns(self._clock)
        self._samples: Samples = {}
        self._left_out: dict[str, int] = {}

    async def run(self) -> calls.NodeMetrics:
        began = self._clock.monotonic()
        self._samples.update(self._counters.samples())
        await self._partitions()
        await self._topics()
        await self._groups()
        await self._queues()
        await self._machine()
        self._nodes()
        clients = self._clients()
        self._samples["penstock_series_left_out"] = [
            ((family,), count) for family, count in self._left_out.items()
        ]
        self._turns.end()
        self._gauge("penstock_scrape_seconds", self._clock.monotonic() - began)
        self._gauge("penstock_scrape_turn_seconds", self._turns.longest_s)
        return calls.NodeMetrics(samples=_sendable(self._samples), clients=clients)

    def _gauge(self, name: str, value: float, *labels: str) -> None:
        self._samples.setdefault(name, []).append((labels, value))

    # Partitions and topics

    async def _partitions(self) -> None:
        led = lacking = stopped = leaderless = size = term = 0
        sizes: dict[str, int] = {}
        replicas = self._services.partitions.all()
        for replica in replicas:
            topic = replica.partition.topic
            size += replica.size_bytes
            sizes[topic] = sizes.get(topic, 0) + replica.size_bytes
            term = max(term, replica.term)
            stopped += replica.stopped_because is not None
            leaderless += replica.leader is None
            if replica.is_leader:
                led += 1
                lacking += self._lacks_replicas(replica)
            await self._turns.pause()
        for name, value in (
            ("partition_replicas", len(replicas)),
            ("partition_replicas_stopped", stopped),
            ("partitions_led", led),
            ("partitions_under_replicated", lacking),
            ("partitions_without_leader", leaderless),
            ("log_bytes", size),
            ("term_max", term),
            ("unflushed_bytes", self._services.pressure.total),
            ("disk_waiting_seconds", self._services.partitions.disk_waiting_s),
        ):
            self._gauge(f"penstock_{name}", value)
        await self._forget_gone()
        self._samples["penstock_topic_log_bytes"] = [
            ((topic,), sizes[topic]) for topic, _ in self._counters.topics if topic in sizes
        ]

    def _lacks_replicas(self, replica: Replica) -> bool:
        topic = self._services.topics.find(replica.partition.topic)
        partition = replica.partition.partition
        if topic is None or partition >= topic.partitions:
            return False
        return len(replica.in_sync()) < len(topic.assignments[partition].replicas)

    async def _forget_gone(self) -> None:
        """Counts of topics that were deleted. One that is new is in the metadata before anybody
        counts for it."""
        find, topics, queues = (
            self._services.topics.find,
            self._counters.topics,
            self._counters.queues,
        )
        for topic in topics.labels():
            if find(topic) is None:
                topics.forget(topic)
            await self._turns.pause()
        for queue in queues.labels():
            if find(queue[1]) is None:
                queues.forget(queue)
            await self._turns.pause()

    async def _topics(self) -> None:
        self._gauge("penstock_topics", len(self._services.topics.all()))
        for topic, traffic in self._counters.topics:
            self._gauge("penstock_topic_records_in_total", traffic.records_in, topic)
            self._gauge("penstock_topic_bytes_in_total", traffic.bytes_in, topic)
            self._gauge("penstock_topic_records_out_total", traffic.records_out, topic)
            self._gauge("penstock_topic_bytes_out_total", traffic.bytes_out, topic)
            await self._turns.pause()
        self._left_out["penstock_topic"] = self._counters.topics.left_out

    # Groups and queues

    async def _groups(self) -> None:
        count = 0
        for some in self._services.groups.counts():
            count += some
            await self._turns.pause()
        self._gauge("penstock_groups", count)
        series: dict[Series, Behind] = {}
        left_out = 0
        for group, topic, offsets in self._services.groups.committed():
            if len(series) < GROUP_SERIES_MAX:
                series[group, topic] = Behind(offsets)
            else:
                left_out += 1
            await self._turns.pause()
        self._left_out["penstock_group"] = left_out
        await self._look_behind(series)
        for labels, behind in series.items():
            self._gauge("penstock_group_lag_records", behind.records, *labels)
            self._gauge("penstock_group_lag_seconds", self._age_s(behind), *labels)
            await self._turns.pause()

    async def _queues(self) -> None:
        series: dict[Series, Behind] = {}
        left_out: set[Series] = set()
        for queue in self._services.queues.stored():
            machine, topic = queue.machine, self._services.topics.find_by_id(queue.key.topic_id)
            if machine is None or topic is None:
                continue
            key = str(queue.key.group_id), str(topic.name)
            if key not in series and len(series) >= QUEUE_SERIES_MAX:
                left_out.add(key)
                continue
            behind = series.setdefault(key, Behind({}))
            behind.offsets[queue.key.partition] = machine.start
            behind.done += machine.done_count
            behind.leased += machine.leased_count
            behind.delayed += machine.delayed_count
            behind.dying += machine.dying_count
            await self._turns.pause()
        await self._look_behind(series)
        for labels, behind in series.items():
            depth = max(0, behind.records - behind.done)
            self._gauge("penstock_queue_depth", depth, *labels)
            self._gauge("penstock_queue_leased", behind.leased, *labels)
            self._gauge("penstock_queue_delayed", behind.delayed, *labels)
            self._gauge("penstock_queue_dying", behind.dying, *labels)
            self._gauge("penstock_queue_oldest_seconds", self._age_s(behind), *labels)
            await self._turns.pause()
        for labels, counts in self._counters.queues:
            self._gauge("penstock_queue_deliveries_total", counts.records, *labels)
            self._gauge("penstock_queue_redeliveries_total", counts.repeated, *labels)
            self._gauge("penstock_queue_dead_letters_total", counts.dead, *labels)
            await self._turns.pause()
        self._left_out["penstock_queue"] = len(left_out) + self._counters.queues.left_out

    def _age_s(self, behind: Behind) -> float:
        if behind.oldest_ms is None:
            return 0.0
        return max(0, self._clock.now_ms() - behind.oldest_ms) / 1000

    async def _look_behind(self, series: Mapping[Series, Behind]) -> None:
        """First where all partitions end, then how old the first records behind are."""
        asked: dict[tuple[str, int], int] = {}
        for (_, topic), behind in series.items():
            for partition, offset in behind.offsets.items():
                asked[topic, partition] = offset
            await self._turns.pause()
        # One by one, since there may be very many.
        ends = await self._find((*place, offset, False) for place, offset in asked.items())
        wanted: list[tuple[str, int, int, bool]] = []
        owners: list[Behind] = []
        for (_, topic), behind in series.items():
            for partition, offset in behind.offsets.items():
                place = topic, partition, asked[topic, partition]
                end, _ = ends.get(place, NOT_FOUND)
                if end > offset:
                    behind.by_partition[partition] = end - offset
            behind.records = sum(behind.by_partition.values())
            most = sorted(behind.by_partition, key=behind.by_partition.__getitem__, reverse=True)
            for partition in most[:TIMES_PER_SERIES_MAX]:
                wanted.append((topic, partition, behind.offsets[partition], True))
                owners.append(behind)
            await self._turns.pause()
        times = await self._find(wanted)
        for (topic, partition, offset, _), behind in zip(wanted, owners, strict=True):
            _, at_ms = times.get((topic, partition, offset), NOT_FOUND)
            if at_ms >= 0:
                oldest_ms = behind.oldest_ms
                behind.oldest_ms = at_ms if oldest_ms is None else min(oldest_ms, at_ms)

    async def _find(self, places: Iterable[tuple[str, int, int, bool]]) -> FoundAt:
        """End and time of each place, here or from the leader of the partition."""
        by_node: dict[BrokerId, list[calls.Place]] = {}
        for topic, partition, offset, with_time in places:
            node = self._holder(topic, partition)
            if node is not None and len(by_node.setdefault(node, [])) < PLACES_MAX:
                place = calls.Place(
                    topic=topic, partition=partition, offset=offset, with_time=with_time
                )
                by_node[node].append(place)
            await self._turns.pause()
        self._turns.end()
        answers = await asyncio.gather(*(self._ask(*item) for item in by_node.items()))
        self._turns.begin()
        found_at: FoundAt = {}
        for asked, found in zip(by_node.values(), answers, strict=True):
            for place, each in zip(asked, found, strict=False):
                if each.end_offset >= 0:
                    where = place.topic, place.partition, place.offset
                    found_at[where] = each.end_offset, each.timestamp_ms
                await self._turns.pause()
        return found_at

    def _holder(self, topic: str, partition: int) -> BrokerId | None:
        """This node if it has a copy, else the leader's."""
        found = self._services.topics.find(topic)
        if found is None or partition >= found.partitions:
            return None
        key = PartitionId(found.topic_id, PartitionIndex(partition))
        if self._services.partitions.find(key) is not None:
            return self._desk.own
        leader = self._services.leaderships.reachable_leader(found.topic_id, partition)
        return None if leader is None else leader.id

    async def _ask(self, node: BrokerId, places: list[calls.Place]) -> list[calls.FoundPlace]:
        call = calls.FindPlaces(places=places)
        try:
            if node == self._desk.own:
                return (await find_places(self._desk, call)).places
            return (await self._desk.ask(node, call, PLACES_S_MAX)).places
        except Refused:
            # Nobody has to wait for a scrape: what a silent node knows is left out.
            return []

    # The node

    async def _machine(self) -> None:
        services = self._services
        self._turns.end()
        self._samples.update(await asyncio.to_thread(process_samples))
        usage = await services.log_directories.usage()
        self._turns.begin()
        if usage is not None:
            self._gauge("penstock_disk_free_bytes", usage.free)
            self._gauge("penstock_disk_size_bytes", usage.total)
        self._gauge("penstock_cold_reads_total", services.fetch.cold_reads.count)
        self._gauge("penstock_cold_reads_waiting", services.fetch.cold_reads.waiting)

    def _nodes(self) -> None:
        leaderships, own = self._services.leaderships, self._desk.own
        brokers = leaderships.all_brokers()
        self._gauge("penstock_nodes", len(brokers))
        self._gauge("penstock_nodes_alive", sum(is_alive for _, is_alive in brokers))
        self._gauge("penstock_is_controller", int(leaderships.controller() == own))
        self._gauge("penstock_node_info", 1, str(own), __version__)

    def _clients(self) -> list[calls.ClientValues]:
        """The newest first."""
        pushed = self._services.client_metrics.last_pushed()
        shown: list[calls.ClientValues] = []
        size = 0
        for each in reversed(pushed):
            size += len(each.otlp)
            if len(shown) == CLIENTS_MAX or size > CLIENT_BYTES_MAX:
                break
            shown.append(
                calls.ClientValues(
                    client_id=each.client.client_id or "",
                    instance_id=str(each.client.instance_id),
                    otlp=each.otlp,
                )
            )
        self._left_out["penstock_client"] = len(pushed) - len(shown)
        return shown


def _sendable(samples: Samples) -> dict[str, list[tuple[list[str], float | list[float]]]]:
    """Tuples travel as lists."""
    return samples  # type: ignore[return-value]


# Places


async def find_places(desk: Desk, call: calls.FindPlaces) -> calls.FoundPlaces:
    services = desk.services
    turns = Turns(services.clock)
    found: list[calls.FoundPlace] = []
    timed: list[tuple[calls.FoundPlace, Replica, int]] = []
    for place in call.places:
        answer = calls.FoundPlace(end_offset=UNKNOWN, timestamp_ms=UNKNOWN)
        found.append(answer)
        try:
            replica = services.partitions.get(TopicName(place.topic), place.partition)
        except Refused:
            continue
        answer.end_offset = replica.high_watermark
        if place.with_time and place.offset < replica.high_watermark:
            timed.append((answer, replica, place.offset))
        await turns.pause()
    if timed:
        await services.fetch.cold_reads.done(lambda: _read_times(timed))
    return calls.FoundPlaces(places=found)


def _read_times(timed: Iterable[tuple[calls.FoundPlace, Replica, int]]) -> None:
    """In a worker thread: the time of a batch is in its header."""
    for answer, replica, offset in timed:
        try:
            answer.timestamp_ms = _time_at(replica, max(offset, replica.log_start_offset))
        except (Refused, OSError, StorageDamaged, CorruptBatch):
            # Retention took it meanwhile, or it is damaged, which others will find.
            continue


def _time_at(replica: Replica, offset: int) -> int:
    replica.load_index(offset)
    found = replica.read_committed(offset, 1)
    if found is None:
        return UNKNOWN
    try:
        header = parse_header(found.file.pread(HEADER_SIZE, found.position))
    finally:
        found.release()
    return header.base_timestamp if header.base_timestamp >= 0 else header.max_timestamp


METHODS = (
    Method(calls.CollectMetrics, collect_metrics),
    Method(calls.FindPlaces, find_places),
)
