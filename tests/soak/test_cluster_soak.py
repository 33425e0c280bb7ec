"""The long forms of the cluster's live tests: fifty kills, and minutes of every other fault."""

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.e2e import cluster_network
from tests.e2e.cluster_disks import small_disk, why_nothing_freezes
from tests.e2e.cluster_history import BUSY
from tests.e2e.cluster_network import Network
from tests.e2e.cluster_nodes import Cluster
from tests.e2e.cluster_rot import rot_one
from tests.e2e.cluster_scenarios import (
    TOPIC,
    Fault,
    anything,
    cut_off_leader,
    cut_one_way,
    cut_power,
    fill_disk,
    freeze_leader,
    kill_one,
    lose_disk,
    move_around,
    pause_leader,
    replace_node,
    restart_each,
    run_rounds,
    three_nodes,
    three_nodes_on_disks,
)
from tests.soak.conftest import Tell

run_rounds_busily = partial(run_rounds, pace=BUSY)

pytestmark = [pytest.mark.soak, pytest.mark.timeout(0)]

KILLS = int(os.environ.get("SOAK_KILLS", "50"))
KILL_EVERY_S = 5.0
# The faults below take 5 to 30 seconds each, so that each soak is about two minutes long.
ROUNDS = int(os.environ.get("SOAK_ROUNDS", "8"))
# A fault that comes more often than the cluster settles would prove less, not more.
EVERY_S = 12.0


@pytest.fixture
def network() -> Iterator[Network]:
    reason = cluster_network.why_not()
    if reason is not None:
        pytest.skip(f"cut networks can't be tested: {reason}")
    with Network(3) as network:
        yield network


def test_random_kills(tmp_path: Path, tell: Tell, seed: int) -> None:
    with three_nodes(tmp_path) as cluster:
        outcome = run_rounds_busily(
            cluster, kill_one, rounds=KILLS, every_s=KILL_EVERY_S, seed=seed
        )
    tell(f"seed {seed}, {KILLS} kills: {outcome}")


@pytest.mark.parametrize(
    "fault",
    [pause_leader, restart_each, lose_disk, replace_node, move_around, rot_one],
    ids=lambda fault: fault.__name__,
)
def test_fault(tmp_path: Path, tell: Tell, seed: int, fault: Fault) -> None:
    with three_nodes(tmp_path) as cluster:
        outcome = run_rounds_busily(cluster, fault, rounds=ROUNDS, every_s=EVERY_S, seed=seed)
    tell(f"seed {seed}, {ROUNDS} rounds: {outcome}")


@pytest.mark.parametrize(
    "make", [cut_off_leader, cut_one_way, anything], ids=lambda make: make.__name__
)
def test_cut(tmp_path: Path, tell: Tell, seed: int, network: Network, make: object) -> None:
    assert callable(make)
    with three_nodes(tmp_path, network) as cluster:
        outcome = run_rounds_busily(
            cluster, make(network), rounds=ROUNDS, every_s=EVERY_S, seed=seed
        )
    tell(f"seed {seed}, {ROUNDS} rounds: {outcome}")


def test_full_disk(tmp_path: Path, tell: Tell, seed: int) -> None:
    cluster = Cluster(tmp_path)
    node = cluster.nodes[1]
    with small_disk(node) as disk, cluster:
        cluster.create_topic(TOPIC)
        fault = fill_disk(node, disk)
        outcome = run_rounds_busily(cluster, fault, rounds=ROUNDS, every_s=EVERY_S, seed=seed)
    tell(f"seed {seed}, {ROUNDS} times full: {outcome}")


def test_power_cuts(tmp_path: Path, tell: Tell, seed: int) -> None:
    reason = why_nothing_freezes()
    if reason is not None:
        pytest.skip(f"power cuts can't be tested: {reason}")
    with three_nodes_on_disks(tmp_path) as (cluster, disks):
        outcome = run_rounds_busily(
            cluster, cut_power(disks), rounds=ROUNDS, every_s=EVERY_S, seed=seed
        )
    tell(f"seed {seed}, {ROUNDS} power cuts of all nodes: {outcome}")


def test_hanging_disk(tmp_path: Path, tell: Tell, seed: int) -> None:
    reason = why_nothing_freezes()
    if reason is not None:
        pytest.skip(f"disks that hang can't be tested: {reason}")
    moved_s: list[float] = []
    with three_nodes_on_disks(tmp_path) as (cluster, disks):
        fault = freeze_leader(disks, moved_s)
        outcome = run_rounds_busily(cluster, fault, rounds=ROUNDS, every_s=EVERY_S, seed=seed)
    moved = ", ".join(f"{seconds:.1f}" for seconds in moved_s)
    tell(f"seed {seed}, frozen {ROUNDS} times, all went on after {moved} s: {outcome}")
