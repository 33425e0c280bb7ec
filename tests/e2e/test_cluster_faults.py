"""Proves that three nodes lose nothing they acknowledged, whatever happens to one of them.

Real processes under idempotent producers and a consumer group of confluent-kafka; the soaks run
the same scenarios for minutes (tests/soak).
"""

import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.e2e import cluster_network
from tests.e2e.cluster_disks import small_disk, why_nothing_freezes
from tests.e2e.cluster_history import under_load
from tests.e2e.cluster_network import Network
from tests.e2e.cluster_nodes import Cluster, ClusterNode, wait_until
from tests.e2e.cluster_scenarios import (
    OFFSETS,
    SETTLED_WITHIN_S,
    TOPIC,
    cut_off_leader,
    cut_one_way,
    cut_power,
    fill_disk,
    freeze_leader,
    judge,
    kill_one,
    pause_leader,
    restart_each,
    run_rounds,
    three_nodes,
    three_nodes_on_disks,
)

# What a node waits for its disk, an election, and the search of clients for the new leader.
REPLACED_WITHIN_S = 5.0
# Until what is in flight is answered and the disk was given time.
STOPS_WITHIN_S = 40.0

# One after the other: two clusters at once on two cores would measure each other.
pytestmark = [pytest.mark.xdist_group("cluster"), pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def can_cut() -> None:
    reason = cluster_network.why_not()
    if reason is not None:
        pytest.skip(f"cut networks can't be tested: {reason}")


@pytest.fixture
def network(can_cut: None) -> Iterator[Network]:
    with Network(3) as network:
        yield network


def test_random_kills_lose_nothing(tmp_path: Path) -> None:
    with three_nodes(tmp_path) as cluster:
        run_rounds(cluster, kill_one, rounds=3, every_s=4, seed=3)


def test_a_kill_of_all_nodes_at_once_loses_nothing(tmp_path: Path) -> None:
    with three_nodes(tmp_path) as cluster, under_load(cluster.bootstrap, TOPIC) as history:
        cluster.freeze_and_kill()
        cluster.start()
        history.wait_for_progress()
        judge(cluster, history)


def test_a_rolling_restart_is_seen_only_as_latency(tmp_path: Path) -> None:
    with three_nodes(tmp_path) as cluster:
        run_rounds(cluster, restart_each, rounds=1, every_s=0, seed=1)


def test_a_leader_paused_for_longer_than_an_election_does_no_harm(tmp_path: Path) -> None:
    with three_nodes(tmp_path) as cluster:
        run_rounds(cluster, pause_leader, rounds=1, every_s=0, seed=1)


def test_a_cut_off_leader_acknowledges_nothing(tmp_path: Path, network: Network) -> None:
    with three_nodes(tmp_path, network) as cluster:
        run_rounds(cluster, cut_off_leader(network), rounds=1, every_s=0, seed=1)


def test_packets_lost_one_way_stop_nobody_for_long(tmp_path: Path, network: Network) -> None:
    with three_nodes(tmp_path, network) as cluster:
        run_rounds(cluster, cut_one_way(network), rounds=2, every_s=0, seed=2)


def test_a_full_disk_on_one_node_stops_nobody_else(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    node = cluster.nodes[1]
    with small_disk(node) as disk, cluster:
        cluster.create_topic(TOPIC)
        run_rounds(cluster, fill_disk(node, disk), rounds=1, every_s=0, seed=1)


@pytest.fixture(scope="module")
def can_freeze() -> None:
    reason = why_nothing_freezes()
    if reason is not None:
        pytest.skip(f"disks that hang can't be tested: {reason}")


def test_a_leader_whose_disk_hangs_is_replaced(tmp_path: Path, can_freeze: None) -> None:
    moved_s: list[float] = []
    with three_nodes_on_disks(tmp_path) as (cluster, disks):
        run_rounds(cluster, freeze_leader(disks, moved_s), rounds=2, every_s=0, seed=1)
    assert min(moved_s) < REPLACED_WITHIN_S, moved_s


def test_a_power_cut_of_all_nodes_loses_nothing(tmp_path: Path, can_freeze: None) -> None:
    """Dirty pages and the journal of a real file system go with the power."""
    with three_nodes_on_disks(tmp_path) as (cluster, disks):
        run_rounds(cluster, cut_power(disks), rounds=1, every_s=0, seed=1)


def test_a_node_whose_disk_hangs_stops_all_the_same(tmp_path: Path, can_freeze: None) -> None:
    with three_nodes_on_disks(tmp_path) as (cluster, disks):
        node = cluster.leader(TOPIC)
        assert node.process is not None
        with under_load(cluster.bootstrap, TOPIC) as history:
            history.wait_for_progress()
            with disks[node.number].frozen():
                history.wait_for_progress()
                node.process.send_signal(signal.SIGTERM)
                # The kernel keeps what hangs in it, and so the process, until the disk answers.
                wait_until("the end of its first thread", lambda: has_ended(node), STOPS_WITHIN_S)
                history.wait_for_progress()
            node.process.wait(STOPS_WITHIN_S)
            assert "stopped without a last checkpoint: the disk does not answer" in node.stderr()
            node.start()
            judge(cluster, history)


def has_ended(node: ClusterNode) -> bool:
    return psutil.Process(node.pid).status() == psutil.STATUS_ZOMBIE


def test_groups_and_topics_are_the_same_on_every_node(tmp_path: Path) -> None:
    """A fresh cluster: every node answers alike, and leaders are spread."""
    with three_nodes(tmp_path) as cluster, under_load(cluster.bootstrap, TOPIC) as history:
        cluster.wait_until_healthy(TOPIC, OFFSETS)

        def are_alike_and_spread() -> bool:
            first, *others = (node.partitions(TOPIC) for node in cluster.nodes.values())
            is_spread = {view.leader for view in first.values()} == {1, 2, 3}
            return is_spread and all(other == first for other in others)

        # A node that was slow to stand for election leads what it should some seconds later.
        wait_until("equal answers and spread leaders", are_alike_and_spread, SETTLED_WITHIN_S)
        history.finish()
