"""`penstock cluster` against a cluster in memory: what it says, orders and refuses."""

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

from penstock.cli.cluster_status import status_of
from penstock.cli.cluster_watch import watch
from penstock.cli.main import cli
from penstock.client.cluster import ClusterClient
from penstock.client.errors import BrokerUnreachable
from tests.unit.client.fake_cluster import FakeCluster, at


class Shell:
    """Runs commands against one cluster."""

    def __init__(self, fake: FakeCluster) -> None:
        self.fake = fake

    def attempt(self, *arguments: str) -> Result:
        return CliRunner().invoke(cli, ["cluster", *arguments])

    def run(self, *arguments: str) -> str:
        outcome = self.attempt(*arguments)
        assert outcome.exit_code == 0, (outcome.output, outcome.exception)
        return outcome.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "--json"))

    def failure(self, *arguments: str) -> str:
        outcome = self.attempt(*arguments)
        assert outcome.exit_code != 0
        return str(outcome.exception)


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Shell:
    fake = FakeCluster(4)
    monkeypatch.setattr(
        "penstock.client.kafka_connection.KafkaConnection", lambda bootstrap, timeout_s: fake
    )
    monkeypatch.setattr("penstock.client.moves.POLL_S", 0.0)
    return Shell(fake)


def test_a_healthy_cluster_in_a_few_lines(shell: Shell) -> None:
    shell.fake.racks = {1: "west", 2: "east"}
    shell.fake.add("orders", 0, 1, 2, 3)
    shell.fake.add("orders", 1, 2, 3, 1)
    assert shell.run("status").splitlines() == [
        "Cluster fake, 4 nodes, controlled by node 1",
        "NODE  ADDRESS         RACK  STATE  ROLE        LEADERS  REPLICAS",
        "   1  127.0.0.1:9001  west  up     controller        1         2",
        "   2  127.0.0.1:9002  east  up     voter             1         2",
        "   3  127.0.0.1:9003  -     up     voter             0         2",
        "   4  127.0.0.1:9004  -     up     learner           0         0",
        "2 partitions, all with a leader and all copies in sync",
    ]


def test_what_is_wrong_is_listed(shell: Shell) -> None:
    shell.fake.add("orders", 0, 1, 2)
    shell.fake.add("orders", 1, 3, leader=-1)
    shell.fake.add("orders", 2, 1)
    shell.fake.down, shell.fake.drained = {3}, {2}
    shell.fake.moving[at("orders", 2)] = ([2], 5)
    text = shell.run("status")
    assert "drained  voter" in text
    assert "down     voter" in text
    assert "1 partition without a leader\nPARTITION  LEADER  REPLICAS  IN SYNC" in text
    assert "1 partition under-replicated" in text
    assert "1 partition being moved" in text
    found = shell.json("status")
    assert found["without_leader"] == [
        {"topic": "orders", "partition": 1, "leader": None, "replicas": [3], "in_sync": []}
    ]
    assert found["under_replicated"] == found["without_leader"]
    assert found["moving"][0]["adding"] == [2]
    assert found["moving"][0]["removing"] == [1]
    assert [node["state"] for node in found["nodes"]] == ["up", "drained", "down", "up"]


def test_without_a_controller_it_says_so(shell: Shell) -> None:
    shell.fake.controller = -1
    assert "without a controller" in shell.run("status")
    assert shell.json("status")["controller"] is None


def test_drain_empties_a_node_and_keeps_it_empty(shell: Shell) -> None:
    for number in range(30):
        shell.fake.add("orders", number, 1 + number % 3, 1 + (number + 1) % 3)
    text = shell.run("drain", "2")
    assert text == "Node 2 is empty: 20 partitions moved.\n"
    assert shell.fake.drained == {2}
    assert not any(2 in replicas for replicas in shell.fake.replicas.values())
    assert shell.json("drain", "2") == {"node": 2, "drained": True, "moved": 0}
    assert shell.run("drain", "2", "--undo") == "Node 2 takes replicas again.\n"
    assert shell.fake.drained == set()


def test_drain_changes_nothing_when_the_others_have_no_room(shell: Shell) -> None:
    shell.fake.add("orders", 0, 1, 2, 3, 4)
    assert "--fewer-copies" in shell.failure("drain", "2")
    assert shell.fake.drained == set()
    shell.run("drain", "2", "--fewer-copies")
    assert shell.fake.replicas[at("orders", 0)] == [1, 3, 4]


def test_a_plan_can_be_seen_before(shell: Shell) -> None:
    shell.fake.add("orders", 0, 2, 3)
    assert shell.run("drain", "2", "--dry-run").splitlines() == [
        "PARTITION  FROM  TO",
        "orders-0   2,3   3,1",
    ]
    assert shell.json("rebalance", "--dry-run") == []
    assert shell.fake.orders == []
    assert shell.fake.drained == set()


def test_undo_takes_no_other_option(shell: Shell) -> None:
    assert "--undo" in shell.attempt("drain", "2", "--undo", "--dry-run").stderr


def test_only_an_empty_node_is_removed(shell: Shell) -> None:
    shell.fake.add("orders", 0, 2, 3)
    assert "penstock cluster drain 2" in shell.failure("remove", "2")
    assert shell.run("remove", "4") == "Node 4 is no longer in the cluster.\n"
    assert shell.fake.nodes == {1, 2, 3}
    assert "There is no node 4" in shell.failure("remove", "4")


def test_rebalance_spreads_replicas_and_leaders(shell: Shell) -> None:
    for number in range(8):
        shell.fake.add("orders", number, 1, 2, 3)
    assert shell.json("rebalance")["not_led_by_preferred"] == 0
    leads = sorted(shell.fake.leaders.values())
    assert leads == [1, 1, 2, 2, 3, 3, 4, 4]
    assert shell.run("rebalance") == "0 partitions moved.\n"


def test_a_leader_is_transferred(shell: Shell) -> None:
    shell.fake.add("orders", 0, 1, 2, 3)
    assert shell.run("transfer-leader", "orders", "0", "--to", "3") == "Node 3 leads orders-0.\n"
    assert shell.fake.leaders[at("orders", 0)] == 3
    assert shell.fake.replicas[at("orders", 0)] == [3, 1, 2]
    assert shell.json("transfer-leader", "orders", "0", "--to", "3")["leader"] == 3


def test_only_a_replica_can_lead(shell: Shell) -> None:
    shell.fake.add("orders", 0, 1, 2)
    failure = shell.failure("transfer-leader", "orders", "0", "--to", "4")
    assert failure == "Node 4 has no replica of orders-0, which is on nodes 1, 2."
    assert "no partition orders-7" in shell.failure("transfer-leader", "orders", "7", "--to", "1")


def test_watching_goes_on_while_nobody_answers(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shell.fake.add("orders", 0, 1, 2, 3)
    looks = 0

    def pause(seconds: float) -> None:
        nonlocal looks
        assert seconds == 5
        looks += 1
        if looks == 1:
            monkeypatch.setattr(shell.fake, "ask", refuse)
        elif looks == 2:
            monkeypatch.undo()
            shell.fake.add("orders", 1, 2, 3, 1)
        else:
            raise KeyboardInterrupt

    def refuse(*given: object, **named: object) -> None:
        raise BrokerUnreachable("No broker answers.")

    def look() -> dict[str, Any]:
        client = ClusterClient(shell.fake)  # type: ignore[arg-type]
        return status_of(client.view(), client.moving())

    with pytest.raises(KeyboardInterrupt):
        watch(look, 5, True, pause)
    first, second, third = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["partitions"], second["error"]) == (1, "No broker answers.")
    assert (third["partitions"], "at" in third) == (2, True)


def test_watching_fails_at_once_where_nobody_answers(shell: Shell) -> None:
    def look() -> dict[str, Any]:
        raise BrokerUnreachable("No broker answers.")

    with pytest.raises(BrokerUnreachable):
        watch(look, 5, False)


def test_the_time_between_two_looks_has_bounds(shell: Shell) -> None:
    assert shell.attempt("status", "--watch", "0").exit_code == 2
