"""Proves that a power cut of all nodes, and rot at the ends of logs, lose nothing acknowledged."""

from tests.sim.replicas.tails import run_one_flipped, run_power_cut, run_two_flipped

SEEDS = range(1, 16)


def test_after_a_power_cut_of_all_nodes_somebody_leads_soon() -> None:
    reports = [run_power_cut(seed) for seed in SEEDS]
    assert sum(report.power_cuts for report in reports) == 3 * len(SEEDS)
    assert sum(report.failed_syncs for report in reports) > len(SEEDS)
    assert sum(report.acknowledged for report in reports) > 100 * len(SEEDS)


def test_rot_at_the_end_of_one_log_of_three_loses_nothing() -> None:
    reports = [run_one_flipped(seed) for seed in SEEDS]
    assert sum(report.tails_flipped for report in reports) > len(SEEDS) // 2
    assert sum(report.stopped for report in reports) == 0


def test_rot_at_the_ends_of_two_logs_of_three_loses_nothing_or_stops() -> None:
    reports = [run_two_flipped(seed) for seed in SEEDS]
    assert sum(report.tails_flipped for report in reports) > len(SEEDS)
    assert sum(report.stopped for report in reports) < len(SEEDS)
