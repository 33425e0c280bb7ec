"""Proves on real processes that a lock has one holder at a time: while a holder stands still for
longer than its lease, while the controller is killed, and while it is cut off."""

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.client.lock import now_s
from penstock.testing import ProcessCluster
from tests.e2e.lock_worker import LEASE_S, LOCK
from tests.waiting import wait_until

# One after the other: two clusters at once on two cores would measure each other.
pytestmark = [pytest.mark.xdist_group("cluster-clients"), pytest.mark.timeout(180)]

Make = Callable[..., ProcessCluster]

WORKERS = 3
WAIT_S = 60.0


class Journal:
    def __init__(self, path: Path) -> None:
        self.path = path

    def lines(self) -> list[dict[str, Any]]:
        text = self.path.read_text() if self.path.exists() else ""
        return [json.loads(line) for line in text.splitlines()]

    def entered(self) -> list[dict[str, Any]]:
        return [line for line in self.lines() if line["event"] == "enter"]

    def await_grants(self, count: int) -> None:
        wanted = len(self.entered()) + count
        wait_until(f"{count} more grants", lambda: len(self.entered()) >= wanted)

    def check(self) -> None:
        """Tokens have one owner each and grow, and nobody enters while another is the holder."""
        entered = self.entered()
        assert len({line["token"] for line in entered}) == len(entered)
        by_time = sorted(entered, key=lambda line: line["at"])
        assert [line["token"] for line in by_time] == sorted(line["token"] for line in entered)
        last_held: dict[int, float] = {}
        for line in self.lines():
            if line["event"] == "held":
                last_held[line["token"]] = max(line["at"], last_held.get(line["token"], 0.0))
        for earlier, later in itertools.pairwise(by_time):
            assert last_held.get(earlier["token"], 0.0) < later["at"], (earlier, later)


@contextmanager
def workers(http: str, journal: Path) -> Iterator[list["subprocess.Popen[bytes]"]]:
    command = [sys.executable, "-m", "tests.e2e.lock_worker", http, str(journal)]
    started = [subprocess.Popen(command) for _ in range(WORKERS)]
    try:
        yield started
        assert [worker.poll() for worker in started] == [None] * WORKERS
    finally:
        for worker in started:
            worker.kill()
        for worker in started:
            worker.wait()


def controller(cluster: ProcessCluster, asked: int) -> int | None:
    answer = httpx.get(f"http://{cluster.nodes[asked].http}/v1/nodes", timeout=WAIT_S).json()
    return next((node["node"] for node in answer["nodes"] if node["controller"]), None)


def found_controller(cluster: ProcessCluster, asked: int) -> int:
    wait_until("there is a controller", lambda: controller(cluster, asked) is not None)
    number = controller(cluster, asked)
    assert number is not None
    return number


def holder(cluster: ProcessCluster) -> tuple[int, int] | None:
    """The process and its token."""
    answer = httpx.get(f"http://{cluster.nodes[1].http}/v1/locks/{LOCK}", timeout=WAIT_S)
    if answer.status_code != 200:
        return None
    held = answer.json()
    return int(held["owner"].split(":")[1]), held["fencing_token"]


def pause_a_holder(cluster: ProcessCluster, journal: Journal) -> tuple[int, int]:
    """Stops a worker that has the lock; gives its process and token."""
    while True:
        found = holder(cluster)
        if found is None:
            continue
        process, token = found
        os.kill(process, signal.SIGSTOP)
        # It may have given the lock back just before.
        if holder(cluster) == found and any(line["token"] == token for line in journal.entered()):
            return process, token
        os.kill(process, signal.SIGCONT)


@pytest.mark.slow
def test_a_lock_has_one_holder_whatever_stands_still_or_dies(
    penstock_cluster: Make, tmp_path: Path
) -> None:
    cluster = penstock_cluster(nodes=3)
    journal = Journal(tmp_path / "journal")
    http = ",".join(node.http for node in cluster.nodes.values())
    with workers(http, journal.path):
        journal.await_grants(6)

        # A holder stands still for longer than its lease: others get the lock, and it hears of it.
        process, token = pause_a_holder(cluster, journal)
        paused_at = now_s()
        try:
            wait_until("another one has it", lambda: journal.entered()[-1]["token"] > token, WAIT_S)
            assert now_s() - paused_at > 0.4 * LEASE_S
            journal.await_grants(3)
        finally:
            os.kill(process, signal.SIGCONT)
        lost = {"event": "lost", "worker": process, "token": token}
        wait_until(
            "it hears that it lost the lock",
            lambda: any(lost.items() <= line.items() for line in journal.lines()),
        )

        # The controller dies: the next one goes on where it was.
        victim = found_controller(cluster, 1)
        cluster.nodes[victim].kill()
        journal.await_grants(4)
        cluster.nodes[victim].start()
        cluster.await_in_sync()

        # It is cut off from the others, but not from the workers.
        cut_off = found_controller(cluster, 1)
        cluster.partition({cut_off}, {1, 2, 3} - {cut_off})
        journal.await_grants(4)
        cluster.heal()
        journal.await_grants(2)
    journal.check()


def test_a_token_grows_through_restarts_of_a_lone_node(
    penstock_cluster: Make,
) -> None:
    cluster = penstock_cluster(nodes=1)
    node = cluster.nodes[1]
    tokens = []
    body = {"owner": "one", "lease_ms": 1_000}
    for _ in range(3):
        base = f"http://{node.http}/v1/locks/a"
        taken = httpx.post(f"{base}/acquire", json=body, timeout=WAIT_S)
        assert taken.status_code == 200, taken.text
        tokens.append(taken.json()["fencing_token"])
        given = {"owner": "one", "fencing_token": tokens[-1]}
        assert httpx.post(f"{base}/release", json=given, timeout=WAIT_S).status_code == 204
        again = httpx.post(f"{base}/release", json=given, timeout=WAIT_S)
        assert (again.status_code, again.json()["reason"]) == (409, "lock_not_held")
        node.kill()
        node.start()
    assert tokens == sorted(set(tokens))
