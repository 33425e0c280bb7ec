"""What three copies cost: produce at factor 3 against factor 1, on the same three processes."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin import AdminClient
from tests.e2e.cluster_nodes import Cluster

from benchmarks.figures import Figure
from benchmarks.modes import Mode
from benchmarks.page_cache import warm
from benchmarks.probe import cpu_seconds
from benchmarks.throughput import run_client

FACTORS = (1, 3)
# Three copies, the client's memory, and some that is not found again; the same for every factor.
WARM_FACTOR = 5


class Sample(NamedTuple):
    """One client's run: messages per second, and CPU microseconds per message by broker."""

    rate: float
    leader_us: float
    others_us: tuple[float, ...]

    @property
    def total_us(self) -> float:
        return self.leader_us + sum(self.others_us)


class Round(NamedTuple):
    single: Sample
    triple: Sample

    @property
    def cpu_ratio(self) -> float:
        return self.triple.total_us / self.single.total_us


def run(mode: Mode, folder: Path) -> Iterator[Figure]:
    sizes = [
        (100, "100 B", mode.messages_of_100_bytes),
        (1_000, "1 KB", mode.messages_of_1_kilobyte),
    ]
    with Cluster(folder) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        for size, label, count in sizes:
            rounds = [
                Round(
                    *(
                        measure(cluster, admin, folder, factor, number, count, size)
                        for factor in FACTORS
                    )
                )
                for number in range(mode.rounds)
            ]
            yield from figures(f"produce {label}, three nodes", rounds)


def measure(
    cluster: Cluster,
    admin: AdminClient,
    folder: Path,
    factor: int,
    number: int,
    count: int,
    size: int,
) -> Sample:
    """One topic from its first record to its deletion.

    Memory is warmed each time: a host may take back what is free within seconds, and then a factor
    that needs three times the memory would find less of it warm than the one before left behind.
    """
    topic = f"replication-{factor}-{size}-{number}"
    cluster.create_topic(topic, partitions=1, factor=factor)
    cluster.wait_until_healthy(topic)
    warm(folder, WARM_FACTOR * size * count)
    before = used(cluster)
    client = run_client("produce", cluster.bootstrap, topic, count, size)
    after = used(cluster)
    leader = cluster.leader(topic).number
    cpu_us = {node: 1e6 * (after[node] - before[node]) / count for node in after}
    admin.delete_topics([topic])[topic].result(30)
    return Sample(count / client["seconds"], cpu_us.pop(leader), tuple(sorted(cpu_us.values())))


def used(cluster: Cluster) -> dict[int, float]:
    return {number: cpu_seconds(node.pid) for number, node in cluster.nodes.items()}


def figures(workload: str, rounds: list[Round]) -> Iterator[Figure]:
    """Those of the round whose CPU ratio is the median."""

    def figure(name: str, value: float, unit: str, at_most: float | None = None) -> Figure:
        return Figure(workload=workload, name=name, value=value, unit=unit, at_most=at_most)

    middle = sorted(rounds, key=lambda one: one.cpu_ratio)[len(rounds) // 2]
    for factor, sample in zip(FACTORS, middle, strict=True):
        yield figure(f"rate at factor {factor}", sample.rate, "messages/s")
        yield figure(f"leader CPU at factor {factor}", sample.leader_us, "us/message")
        for number, cpu_us in enumerate(sample.others_us, 1):
            yield figure(f"other CPU {number} at factor {factor}", cpu_us, "us/message")
    yield figure("rate, factor 3 / factor 1", middle.triple.rate / middle.single.rate, "")
    yield figure("total broker CPU, factor 3 / factor 1", middle.cpu_ratio, "", at_most=3.5)
    yield figure("the same, worst round", max(one.cpu_ratio for one in rounds), "")
