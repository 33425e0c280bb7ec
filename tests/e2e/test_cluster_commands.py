"""`penstock cluster` and `penstock up --nodes` on real processes."""

import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from penstock.client.free_ports import free_ports
from penstock.testing import ProcessCluster
from tests.e2e import processes
from tests.e2e.cluster_nodes import free_port
from tests.e2e.commands import Shell

Make = Callable[..., ProcessCluster]
WAIT_S = 60.0
PORT_ATTEMPTS_MAX = 100


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


def replicas(shell: Shell, topic: str) -> list[list[int]]:
    found = shell.json("topic", "describe", topic)
    return [one["replicas"] for one in found["partitions"]]


def test_status_of_a_healthy_and_of_a_broken_cluster(penstock_cluster: Make) -> None:
    cluster = penstock_cluster(nodes=3)
    cluster.create_topic("orders", partitions=6, replication_factor=3)
    shell = Shell(cluster.bootstrap)
    found = eventually(
        lambda: (
            (one := shell.json("cluster", "status"))["controller"] is not None
            and not one["under_replicated"]
            and one
        )
    )
    assert [node["state"] for node in found["nodes"]] == ["up"] * 3
    assert sorted(node["role"] for node in found["nodes"]) == ["controller", "voter", "voter"]
    assert sum(node["leaders"] for node in found["nodes"]) == found["partitions"]
    assert [node["replicas"] for node in found["nodes"]] == [found["partitions"]] * 3
    assert "all with a leader and all copies in sync" in shell.run("cluster", "status")
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
    assert "6 partitions under-replicated" in shell.run("cluster", "status")


def test_a_leader_is_transferred_and_stays(penstock_cluster: Make) -> None:
    cluster = penstock_cluster(nodes=3)
    cluster.create_topic("orders", replication_factor=3)
    cluster.await_in_sync()
    shell = Shell(cluster.bootstrap)
    before = cluster.leader("orders").number
    wanted = 1 + before % 3
    text = shell.run("cluster", "transfer-leader", "orders", "0", "--to", str(wanted))
    assert text == f"Node {wanted} leads orders-0.\n"
    assert cluster.leader("orders").number == wanted
    assert replicas(shell, "orders")[0][0] == wanted
    assert "no replica" in shell.fails("cluster", "transfer-leader", "orders", "0", "--to", "9")


def test_a_node_joins_gets_its_share_and_leaves_again(penstock_cluster: Make) -> None:
    cluster = penstock_cluster(nodes=3)
    cluster.create_topic("orders", partitions=8, replication_factor=3)
    cluster.add_node()
    shell = Shell(cluster.bootstrap)
    assert nodes(shell)[4]["replicas"] == 0
    assert shell.json("cluster", "rebalance", "--dry-run")
    shell.run("cluster", "rebalance")
    held = [one["replicas"] for one in nodes(shell).values()]
    assert max(held) - min(held) <= 1
    cluster.await_in_sync()
    assert "penstock cluster drain 4" in shell.fails("cluster", "remove", "4")
    assert shell.run("cluster", "drain", "4").startswith("Node 4 is empty")
    assert not any(4 in one for one in replicas(shell, "orders"))
    assert nodes(shell)[4]["state"] == "drained"
    cluster.create_topic("later", partitions=4, replication_factor=3)
    assert not any(4 in one for one in replicas(shell, "later"))
    cluster.nodes[4].stop()
    eventually(lambda: nodes(shell)[4]["state"] == "down")
    shell.run("cluster", "remove", "4")
    assert sorted(nodes(shell)) == [1, 2, 3]


def test_a_dead_node_is_replaced_by_command(penstock_cluster: Make) -> None:
    cluster = penstock_cluster(nodes=3)
    cluster.create_topic("orders", partitions=4, replication_factor=3)
    cluster.add_node()
    cluster.nodes[2].kill()
    shell = Shell(",".join(cluster.nodes[number].bootstrap for number in (1, 3, 4)))
    eventually(lambda: nodes(shell)[2]["state"] == "down")
    shell.run("cluster", "drain", "2")
    shell.run("cluster", "remove", "2")
    assert sorted(nodes(shell)) == [1, 3, 4]
    assert all(sorted(one) == [1, 3, 4] for one in replicas(shell, "orders"))
    del cluster.nodes[2]
    cluster.await_in_sync()


def test_draining_without_room_changes_nothing(penstock_cluster: Make) -> None:
    cluster = penstock_cluster(nodes=3)
    cluster.create_topic("orders", replication_factor=3)
    shell = Shell(cluster.bootstrap)
    assert "--fewer-copies" in shell.fails("cluster", "drain", "2")
    assert nodes(shell)[2]["state"] == "up"


def is_free(port: int) -> bool:
    try:
        with socket.create_server(("127.0.0.1", port)):
            return True
    except OSError:
        return False


class LocalCluster:
    """`penstock up --nodes 3` as somebody starts it in a terminal."""

    def __init__(self, data_dir: Path) -> None:
        kafka, peer = self._ports()
        self.data_dir = data_dir
        self.process = subprocess.Popen(
            processes.command(
                "up",
                "--nodes",
                "3",
                "--kafka",
                f"127.0.0.1:{kafka}",
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

    def _ports(self) -> tuple[int, int]:
        """Two of which those 100 and 200 higher, which the other nodes take, are free as well."""
        for _ in range(PORT_ATTEMPTS_MAX):
            # Not those that the system gives to clients: it may do so before the nodes have begun.
            kafka, peer = free_port(), free_port()
            taken = {port + step for port in (kafka, peer) for step in (0, 100, 200)}
            if len(taken) == 6 and all(is_free(port) for port in taken):
                return kafka, peer
        raise AssertionError("no six free ports were found")

    def lines_until_ready(self) -> list[str]:
        assert self.process.stdout is not None
        return [self.process.stdout.readline().strip() for _ in range(4)]

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
    # It is told of once the parent has taken note, and then it is no child any more.
    eventually(lambda: len(local.children()) == 2)
    left = local.children()
    local.process.send_signal(signal.SIGTERM)
    _, errors = local.process.communicate(timeout=WAIT_S)
    assert local.process.returncode == 0
    assert re.search(r"penstock: Node \d ended by signal 9\.", errors)
    assert re.search(r"^node [123] \| ", errors, flags=re.M)
    assert not any(child.is_running() for child in left)


def test_a_node_that_can_not_start_ends_them_all(tmp_path: Path) -> None:
    (tmp_path / "node-2").write_text("no directory")
    kafka, peer = free_ports(2)
    outcome = processes.run(
        "up",
        "--nodes",
        "3",
        "--kafka",
        f"127.0.0.1:{kafka}",
        "--peer",
        f"127.0.0.1:{peer}",
        "--data-dir",
        str(tmp_path),
    )
    assert outcome.returncode == 1
    assert "penstock: Node 2 did not start" in outcome.stderr
