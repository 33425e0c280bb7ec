"""`penstock group` against a real broker."""

import signal
from contextlib import closing

import confluent_kafka
import pytest

from penstock.client import Consumer, Producer
from penstock.testing import Broker
from tests.e2e.commands import COMMAND_TIMEOUT_S, Shell, fresh
from tests.waiting import wait_until


@pytest.fixture
def shell(penstock_session_broker: Broker) -> Shell:
    return Shell.at(penstock_session_broker)


@pytest.fixture
def topic(penstock_session_broker: Broker) -> str:
    """Two partitions with ten records each at known times, too old for retention to keep them."""
    name = penstock_session_broker.create_topic(
        fresh("readings"), partitions=2, settings={"retention.ms": "-1"}
    )
    with Producer(penstock_session_broker.bootstrap) as producer:
        for partition in range(2):
            for number in range(10):
                producer.send(
                    name,
                    str(number).encode(),
                    partition=partition,
                    timestamp_ms=1_700_000_000_000 + number * 1000,
                )
    return name


@pytest.fixture
def group(penstock_session_broker: Broker, topic: str) -> str:
    """A group that has read everything and left."""
    name = fresh("controllers")
    with Consumer(topic, group=name, bootstrap=penstock_session_broker.bootstrap) as consumer:
        read = 0
        while read < 20:
            records = consumer.poll(10)
            consumer.done(records)
            read += len(records)
    return name


def committed(shell: Shell, group: str) -> list[tuple[int, int | None, int | None]]:
    found = shell.json("group", "describe", group)
    return [(one["partition"], one["committed"], one["lag"]) for one in found["offsets"]]


def test_a_group_is_listed_and_described_with_its_lag(shell: Shell, topic: str, group: str) -> None:
    listed = {"group": group, "type": "classic", "state": "empty", "members": 0, "lag": 0}
    assert listed in shell.json("group", "list")
    assert group in shell.run("group", "list")
    assert committed(shell, group) == [(0, 10, 0), (1, 10, 0)]
    shell.run("produce", topic, "-p", "1", stdin="a\nb\nc\n")
    assert committed(shell, group) == [(0, 10, 0), (1, 10, 3)]
    rows = [line.split() for line in shell.run("group", "list").splitlines()]
    assert [group, "classic", "empty", "0", "3"] in rows
    text = shell.run("group", "describe", group)
    assert f"Group {group} (classic) is empty, 0 members, lag 3" in text
    assert [line.split()[:5] for line in text.splitlines()[2:]] == [
        [topic, "0", "10", "10", "0"],
        [topic, "1", "10", "13", "3"],
    ]


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (("--to", "earliest"), 0),
        (("--to", "latest"), 10),
        (("--to", "4"), 4),
        (("--to", "99"), 10),
        (("--to", "-3"), 7),
        (("--to", "@1700000006000"), 6),
        (("--to", "2023-11-14T22:13:25Z"), 5),
        (("--shift", "-4"), 6),
        (("--shift", "-40"), 0),
        (("--shift", "5"), 10),
    ],
)
def test_offsets_can_be_reset(
    shell: Shell, group: str, target: tuple[str, str], expected: int
) -> None:
    changed = shell.json("group", "reset", group, *target)
    assert [(one["before"], one["after"]) for one in changed] == [(10, expected)] * 2
    assert [offset for _, offset, _ in committed(shell, group)] == [expected] * 2


def test_a_dry_run_changes_nothing(shell: Shell, group: str) -> None:
    shown = shell.run("group", "reset", group, "--to", "earliest", "--dry-run")
    assert [line.split()[2:] for line in shown.splitlines()[1:]] == [["10", "0"]] * 2
    assert committed(shell, group) == [(0, 10, 0), (1, 10, 0)]


def test_single_partitions_can_be_reset(shell: Shell, topic: str, group: str) -> None:
    shell.run("group", "reset", group, "--topic", f"{topic}:1", "--to", "3")
    assert committed(shell, group) == [(0, 10, 0), (1, 3, 7)]
    assert shell.fails("group", "reset", group, "--topic", f"{topic}:7", "--to", "3")


def test_a_new_group_can_be_placed_before_it_reads(shell: Shell, topic: str) -> None:
    group = fresh("controllers")
    shell.run("group", "reset", group, "--topic", topic, "--to", "8")
    assert committed(shell, group) == [(0, 8, 2), (1, 8, 2)]
    assert len(shell.run("consume", topic, "-g", group).splitlines()) == 4
    assert "no offsets" in shell.fails("group", "reset", fresh("nobody"), "--to", "8")


def test_an_active_group_is_refused(shell: Shell, topic: str) -> None:
    group = fresh("controllers")
    with shell.start("consume", topic, "-g", group, "--follow") as member:
        assert member.stdout is not None
        member.stdout.readline()
        assert "active members" in shell.fails("group", "reset", group, "--to", "0")
        assert "active members" in shell.fails("group", "delete", group)
        found = shell.json("group", "describe", group)
        assert found["state"] == "stable"
        assert len(found["members"]) == 1
        assert len(found["members"][0]["partitions"]) == 2
        listed = {one["group"]: one for one in shell.json("group", "list")}
        assert (listed[group]["state"], listed[group]["members"]) == ("stable", 1)
        assert "penstock" in shell.run("group", "describe", group, "--members")
        # SIGTERM lets it commit and leave, so the group is free at once.
        member.terminate()
        assert member.wait(COMMAND_TIMEOUT_S) == 128 + signal.SIGTERM
    assert shell.json("group", "describe", group)["state"] == "empty"
    shell.run("group", "reset", group, "--to", "0")


def test_a_group_whose_partitions_the_broker_assigns_is_shown_with_its_epochs(
    shell: Shell, topic: str, penstock_session_broker: Broker
) -> None:
    group = fresh("controllers")
    settings = {
        "bootstrap.servers": penstock_session_broker.bootstrap,
        "group.id": group,
        "group.protocol": "consumer",
    }
    with closing(confluent_kafka.Consumer(settings)) as consumer:
        consumer.subscribe([topic])
        wait_until("an assignment", lambda: consumer.poll(0.1) or consumer.assignment(), 60)
        listed = {one["group"]: one for one in shell.json("group", "list")}
        assert (listed[group]["type"], listed[group]["members"]) == ("consumer", 1)
        found = shell.json("group", "describe", group)
        (member,) = found["members"]
        assert (found["type"], found["assignor"]) == ("consumer", "uniform")
        assert found["epoch"] == member["epoch"] == 2
        assert member["target"] == member["partitions"]
        assert [one["partition"] for one in member["target"]] == [0, 1]
        text = shell.run("group", "describe", group, "--members")
        assert f"Group {group} (consumer) is stable, 1 member" in text
        assert "epoch 2" in text


def test_a_group_can_be_deleted(shell: Shell, group: str) -> None:
    assert shell.run("group", "delete", group) == f"Group {group} deleted.\n"
    assert group not in {one["group"] for one in shell.json("group", "list")}
    assert shell.fails("group", "delete", group) == f"Group {group} does not exist."


def test_a_group_that_never_was_is_said_to(shell: Shell) -> None:
    assert shell.fails("group", "describe", "nobody") == "Group nobody does not exist."


def test_a_deleted_topic_does_not_break_the_description(
    shell: Shell, topic: str, group: str
) -> None:
    shell.run("topic", "delete", topic)
    outcome = shell.attempt("group", "describe", group, "--json")
    assert outcome.returncode in (0, 1)
    assert "Traceback" not in outcome.stderr
