"""Proves that members come, go and lose their disks while clients notice nothing but latency."""

from pathlib import Path

import pytest

from tests.e2e.cluster_scenarios import (
    lose_disk,
    lose_votes,
    replace_node,
    run_rounds,
    three_nodes,
)

pytestmark = [pytest.mark.xdist_group("cluster"), pytest.mark.timeout(240)]


def test_a_node_joins_and_another_is_drained_and_removed(tmp_path: Path) -> None:
    with three_nodes(tmp_path) as cluster:
        run_rounds(cluster, replace_node, rounds=1, every_s=0, seed=1)


def test_a_node_that_comes_back_with_an_empty_disk_is_refilled(tmp_path: Path) -> None:
    with three_nodes(tmp_path) as cluster:
        run_rounds(cluster, lose_disk, rounds=1, every_s=0, seed=1)


@pytest.mark.slow
def test_a_node_that_lost_its_votes_is_replaced_by_itself_under_another_id(
    tmp_path: Path,
) -> None:
    with three_nodes(tmp_path) as cluster:
        run_rounds(cluster, lose_votes, rounds=2, every_s=0, seed=1)
