"""A thousand partitions at factor 3: what they cost while idle, and how fast a dead node's move."""

import time
from collections.abc import Iterator
from pathlib import Path

from tests.e2e.cluster_nodes import Cluster, ClusterNode

from benchmarks.figures import Figure
from benchmarks.modes import Mode
from benchmarks.probe import cpu_seconds, rss_megabytes

TOPIC = "many-replicas"
HEALTHY_TIMEOUT_S = 120.0
# The work that creation leaves behind (first checkpoints, leaders that move home) is not idling.
SETTLE_S = 12.0
POLL_S = 0.02
GIVE_UP_S = 120.0


def run(mode: Mode, folder: Path) -> Iterator[Figure]:
    with Cluster(folder) as cluster:
        started = time.perf_counter()
        cluster.create_topic(TOPIC, partitions=mode.partitions)
        yield figure("created", time.perf_counter() - started, "s")
        cluster.wait_until_healthy(TOPIC, timeout_s=HEALTHY_TIMEOUT_S)
        yield figure("all replicas in sync", time.perf_counter() - started, "s")
        mode.settle(SETTLE_S)
        used = idle_percent(cluster, mode.idle_seconds)
        yield figure("idle CPU of the busiest node", max(used), "% of a core", at_most=5.0)
        yield figure("idle CPU of the least busy node", min(used), "% of a core")
        memory = max(rss_megabytes(node.pid) for node in cluster.nodes.values())
        yield figure("resident memory of the largest node", memory, "MB")
        victim = cluster.leader(TOPIC)
        led = sum(view.leader == victim.number for view in victim.partitions(TOPIC).values())
        yield figure("partitions led by the node that is killed", led, "")
        yield figure("all of them led by others", time_to_move(cluster, victim), "s", at_most=3.0)


def idle_percent(cluster: Cluster, seconds: float) -> list[float]:
    before = [cpu_seconds(node.pid) for node in cluster.nodes.values()]
    time.sleep(seconds)
    after = [cpu_seconds(node.pid) for node in cluster.nodes.values()]
    return [100 * (end - begin) / seconds for begin, end in zip(before, after, strict=True)]


def time_to_move(cluster: Cluster, victim: ClusterNode) -> float:
    """Until a survivor tells clients of a living leader for every partition."""
    witness = next(node for node in cluster.nodes.values() if node is not victim)
    killed = time.perf_counter()
    victim.kill()
    while time.perf_counter() < killed + GIVE_UP_S:
        views = witness.partitions(TOPIC).values()
        if all(view.leader not in (-1, victim.number) for view in views):
            return time.perf_counter() - killed
        time.sleep(POLL_S)
    raise TimeoutError(f"partitions of a dead node had no leader for {GIVE_UP_S} s")


def figure(name: str, value: float, unit: str, at_most: float | None = None) -> Figure:
    workload = "1,000 partitions at factor 3"
    return Figure(workload=workload, name=name, value=value, unit=unit, at_most=at_most)
