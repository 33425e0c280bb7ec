"""`penstock cluster` and `penstock up --nodes` on real processes."""

import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from penstock.testing import ProcessCluster
from tests.e2e import processes
from tests.e2e.commands import ANSWER_TIMEOUT_S, Shell
from tests.e2e.ports import free_ports

Make = Callable[..., ProcessCluster]
WAIT_S = 60.0


def eventually(check: Callable[[], Any]) -> Any:
    """What `check` gives, as soon as it gives something."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        if found := check():
            return found
        time.sleep(0.2)
    raise AssertionError("it did not happen in time")


def nodes(shell: Shell) -> dict[int, dict[str, Any]]:
    return {one["node"]: one for one in shell.json("cluster", "status")["nodes"]}


def await_up(shell: Shell, node: int) -> None:
    """A node that joined knows so a little earlier than the one that the commands ask."""
    eventually(lambda: nodes(shell).get(node, {}).get("state") == "up")


def refusal(shell: Shell, *arguments: str) -> str:
    """Why the cluster does not do it, and not that it was slow to answer."""
    return shell.fails("cluster", *arguments, "--timeout", ANSWER_TIMEOUT_S)


def replicas(shell: Shell, topic: str) -> list[list[int]]:
    found = shell.json("topic", "describe", topic)
    return [one["replicas"] for one in found["partitions"]]


def test_status_of_a_healthy_and_of_a_broken_cluster(penstock_cluster: Make) -> None:
    cluster = penstock_cluster(nodes=3)
    cluster.create_topic("orders", partitions=6, replication_factor=3)
    shell = Shell(cluster.bootstrap)
    healthy = "all with a leader and all copies in sync"
    found = eventually(lambda: is_healthy(one := shell.json("cluster", "status")) and one)
    assert [node["state"] for node in found["nodes"]] == ["up"] * 3
    assert sorted(node["role"] for node in found["nodes"]) == ["controller", "voter", "voter"]
    assert sum(node["leaders"] for node in found["nodes"]) == found["partitions"]
    assert [node["replicas"] for node in found["nodes"]] == [found["partitions"]] * 3
    # A leader may change between two questions, and then one of them finds none for a moment.
    eventually(lambda: healthy in shell.run("cluster", "status"))
    cluster.nodes[3].kill()
    eventually(lambda: nodes(shell)[3]["state"] == "down")
    broken = eventually(
        lambda: (
            len((one := shell.json("cluster", "status"))["under_replicated"]) == 6
            and not one["without_leader"]
            and one
        )
    )
    assert all(3 not in one["in_sync"] for one in broken["under_replicated"])
    eventually(lambda: "6 partitions under-replicated" in shell.run("cluster", "status"))


def is_healthy(status: dict[str, Any]) -> bool:
    """As far as that can change by itself: a node that is slow may lose its leadership for a"
    " moment."""
    return (
        status["controller"] is not None
        and all(node["state"] == "up" for node in status["nodes"])
        and not status["under_replicated"]
        and not status["without_leader"]
    )


def test_a_leader_is_transferred_and_stays(penstock_cluster: Make) -> None:
    cluster = penstock_cluster(nodes=3)
    cluster.create_topic("orders", replication_factor=3)
    cluster.await_in_sync()
    shell = Shell(cluster.bootstrap)
    before = cluster.leader("orders").number
    wanted = 1 + before % 3
    text = shell.run("cluster", "transfer-leader", "orders", "0", "--to", str(wanted))
    assert text == f"Node {wanted} leads orders-0.\n"
    # Now it is the preferred one, so that it comes back even if an election should unseat it.
    eventually(lambda: cluster.leader("orders").number == wanted)
    eventually(lambda: replicas(shell, "orders")[0][0] == wanted)
    assert "no replica" in refusal(shell, "transfer-leader", "orders", "0", "--to", "9")


def test_a_node_joins_gets_its_share_and_leaves_again(penstock_cluster: Make) -> None:
    cluster = penstock_cluster(nodes=3)
    cluster.create_topic("orders", partitions=8, replication_factor=3)
    cluster.add_node()
    shell = Shell(cluster.bootstrap)
    await_up(shell, 4)
    assert nodes(shell)[4]["replicas"] == 0
    assert shell.json("cluster", "rebalance", "--dry-run")
    shell.run("cluster", "rebalance")
    held = [one["replicas"] for one in nodes(shell).values()]
    assert max(held) - min(held) <= 1
    cluster.await_in_sync()
    assert "penstock cluster drain 4" in refusal(shell, "remove", "4")
    assert shell.run("cluster", "drain", "4").startswith("Node 4 is empty")
    eventually(lambda: not any(4 in one for one in replicas(shell, "orders")))
    eventually(lambda: nodes(shell)[4]["state"] == "drained")
    cluster.create_topic("later", partitions=4, replication_factor=3)
    assert not any(4 in one for one in replicas(shell, "later"))
    cluster.nodes[4].stop()
    eventually(lambda: nodes(shell)[4]["state"] == "down")
    shell.run("cluster", "remove", "4")
    eventually(lambda: sorted(nodes(shell)) == [1, 2, 3])


def test_a_dead_node_is_replaced_by_command(penstock_cluster: Make) -> None:
    cluster = penstock_cluster(nodes=3)
    cluster.create_topic("orders", partitions=4, replication_factor=3)
    cluster.add_node()
    cluster.nodes[2].kill()
    shell = Shell(",".join(cluster.nodes[number].bootstrap for number in (1, 3, 4)))
    await_up(shell, 4)
    eventually(lambda: nodes(shell)[2]["state"] == "down")
    shell.run("cluster", "drain", "2")
    shell.run("cluster", "remove", "2")
    eventually(lambda: sorted(nodes(shell)) == [1, 3, 4])
    eventually(lambda: all(sorted(one) == [1, 3, 4] for one in replicas(shell, "orders")))
    del cluster.nodes[2]
    cluster.await_in_sync()


def test_draining_without_room_changes_nothing(penstock_cluster: Make) -> None:
    cluster = penstock_cluster(nodes=3)
    cluster.create_topic("orders", replication_factor=3)
    shell = Shell(cluster.bootstrap)
    assert "--fewer-copies" in refusal(shell, "drain", "2")
    assert not nodes(shell)[2]["drained"]


def three_ports() -> int:
    """The first of three: the other nodes take those that are 100 and 200 higher."""
    return free_ports((100, 200))


class LocalCluster:
    """`penstock up --nodes 3` as somebody starts it in a terminal."""

    def __init__(self, data_dir: Path) -> None:
        kafka, grpc, http, peer = (three_ports() for _ in range(4))
        self.data_dir = data_dir
        self.errors = ""
        self.process = subprocess.Popen(
            processes.command(
                "up",
                "--nodes",
                "3",
                "--kafka",
                f"127.0.0.1:{kafka}",
                "--grpc",
                f"127.0.0.1:{grpc}",
                "--http",
                f"127.0.0.1:{http}",
                "--peer",
                f"127.0.0.1:{peer}",
                "--data-dir",
                str(data_dir),
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=processes.clean_environment(),
        )

    def lines_until_ready(self) -> list[str]:
        assert self.process.stdout is not None
        return [self.process.stdout.readline().strip() for _ in range(4)]

    def errors_until(self, pattern: str) -> str:
        """Reads standard error until there is such a line; returns its first group."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.errors += line
            if found := re.search(pattern, line):
                return found[1]
        raise AssertionError(self.errors)

    def children(self) -> list[psutil.Process]:
        return list(psutil.Process(self.process.pid).children())


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalCluster]:
    cluster = LocalCluster(tmp_path / "data")
    yield cluster
    if cluster.process.poll() is None:
        cluster.process.terminate()
    cluster.process.communicate(timeout=WAIT_S)


def test_three_nodes_run_on_one_machine_until_they_are_told_to_stop(local: LocalCluster) -> None:
    *ready, last = local.lines_until_ready()
    numbers = [re.match(r"penstock node (\d) ready: kafka=(\S+)", line) for line in ready]
    assert sorted(match[1] for match in numbers if match) == ["1", "2", "3"]
    assert last.startswith("penstock: all 3 nodes ready: kafka=")
    bootstrap = last.split("kafka=")[1].split()[0]
    shell = Shell(bootstrap)
    assert sorted(nodes(shell)) == [1, 2, 3]
    assert {path.name for path in local.data_dir.iterdir()} == {"node-1", "node-2", "node-3"}
    victim = local.children()[2]
    os.kill(victim.pid, signal.SIGKILL)
    eventually(lambda: any(one["state"] == "down" for one in nodes(shell).values()))
    told = local.errors_until(r"penstock: Node \d ended by signal 9\. Start it again with: (.*)")
    left = local.children()
    assert len(left) == 2
    again = shlex.split(told)
    with shell.start(*again[1:]) as restarted:
        eventually(lambda: all(one["state"] == "up" for one in nodes(shell).values()))
        eventually(lambda: not shell.json("cluster", "status")["under_replicated"])
        restarted.terminate()
        assert restarted.wait(WAIT_S) == 0
    local.process.send_signal(signal.SIGTERM)
    _, errors = local.process.communicate(timeout=WAIT_S)
    assert local.process.returncode == 0
    assert re.search(r"^node [123] \| ", local.errors + errors, flags=re.M)
    assert not any(child.is_running() for child in left)


def test_a_node_that_can_not_start_ends_them_all(tmp_path: Path) -> None:
    (tmp_path / "node-2").write_text("no directory")
    kafka, grpc, http, peer = (three_ports() for _ in range(4))
    outcome = processes.run(
        "up",
        "--nodes",
        "3",
        "--kafka",
        f"127.0.0.1:{kafka}",
        "--grpc",
        f"127.0.0.1:{grpc}",
        "--http",
        f"127.0.0.1:{http}",
        "--peer",
        f"127.0.0.1:{peer}",
        "--data-dir",
        str(tmp_path),
    )
    assert outcome.returncode == 1
    assert "penstock: Node 2 did not start" in outcome.stderr
