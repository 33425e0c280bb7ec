"""`penstock topic` against a real broker."""

import pytest

from penstock.testing import Broker
from tests.e2e.commands import Shell, fresh


@pytest.fixture
def shell(penstock_session_broker: Broker) -> Shell:
    return Shell.at(penstock_session_broker)


def test_a_topic_lives_from_create_to_delete(shell: Shell) -> None:
    name = fresh("orders")
    created = shell.run("topic", "create", name, "-p", "3", "--set", "retention.ms=3600000")
    assert created == f"Topic {name} created.\n"
    listed = {one["name"]: one for one in shell.json("topic", "list")}
    assert listed[name].pop("bytes") < 1_000
    assert listed[name] == {
        "name": name,
        "partitions": 3,
        "replicas": 1,
        "records": 0,
        "internal": False,
    }
    assert name in shell.run("topic", "list")
    assert shell.run("topic", "delete", name) == f"Topic {name} deleted.\n"
    assert name not in shell.run("topic", "list")


def test_describe_shows_partitions_offsets_and_changed_settings(shell: Shell) -> None:
    name = fresh("orders")
    shell.run("topic", "create", name, "-p", "2", "--set", "cleanup.policy=compact")
    shell.run("produce", name, "-k", ":", "-p", "1", stdin="a:1\nb:2\n")
    found = shell.json("topic", "describe", name)
    assert found["name"] == name
    assert [(one["partition"], one["start"], one["end"]) for one in found["partitions"]] == [
        (0, 0, 0),
        (1, 0, 2),
    ]
    assert [(one["name"], one["value"]) for one in found["settings"]] == [
        ("cleanup.policy", "compact")
    ]
    text = shell.run("topic", "describe", name)
    assert "2 partitions" in text
    assert "cleanup.policy  compact" in text
    every = shell.json("topic", "describe", name, "--all-settings")["settings"]
    assert "retention.ms" in {one["name"] for one in every}


def test_alter_changes_what_is_named_and_leaves_the_rest(shell: Shell) -> None:
    name = fresh("orders")
    shell.run("topic", "create", name, "--set", "retention.ms=1000", "--set", "segment.ms=5000")
    shell.run("topic", "alter", name, "-p", "4", "--set", "max.message.bytes=2000")
    shell.run("topic", "alter", name, "--reset", "segment.ms", "--append", "cleanup.policy=compact")
    found = shell.json("topic", "describe", name)
    assert len(found["partitions"]) == 4
    assert {one["name"]: one["value"] for one in found["settings"]} == {
        "retention.ms": "1000",
        "max.message.bytes": "2000",
        "cleanup.policy": "delete,compact",
    }
    shell.run("topic", "alter", name, "--subtract", "cleanup.policy=delete")
    settings = shell.json("topic", "describe", name)["settings"]
    assert ("cleanup.policy", "compact") in [(one["name"], one["value"]) for one in settings]


def test_internal_topics_are_shown_on_request(shell: Shell) -> None:
    topic = fresh("orders")
    shell.run("topic", "create", topic)
    shell.run("consume", topic, "--group", fresh("g"))
    shown = {one["name"] for one in shell.json("topic", "list", "--internal")}
    hidden = {one["name"] for one in shell.json("topic", "list")}
    assert "__consumer_offsets" in shown - hidden


def test_the_list_shows_how_much_a_topic_holds(shell: Shell) -> None:
    name = fresh("orders")
    shell.run("topic", "create", name, "-p", "2")
    shell.run("produce", name, "-p", "0", stdin="x" * 1000 + "\n")
    shell.run("produce", name, "-p", "1", stdin="a\nb\n")
    (found,) = [one for one in shell.json("topic", "list") if one["name"] == name]
    assert found["records"] == 3
    assert 1_000 < found["bytes"] < 2_000
    row = next(line.split() for line in shell.run("topic", "list").splitlines() if name in line)
    assert row == [name, "2", "1", "3", str(found["bytes"])]


def test_the_oldest_records_can_be_deleted(shell: Shell) -> None:
    name = fresh("orders")
    shell.run("topic", "create", name, "-p", "2")
    for number in range(2):
        shell.run("produce", name, "-p", str(number), stdin="a\nb\nc\nd\n")

    def held() -> list[tuple[int, int]]:
        partitions = shell.json("topic", "describe", name)["partitions"]
        return [(one["start"], one["end"]) for one in partitions]

    shown = shell.json("topic", "trim", name, "--keep", "1", "--dry-run")
    assert [one["deleted"] for one in shown] == [3, 3]
    # Without an answer nothing is deleted.
    assert shell.attempt("topic", "trim", name, "--keep", "1").returncode == 130
    assert held() == [(0, 4), (0, 4)]
    assert "1 record deleted" in shell.run(
        "topic", "trim", name, "--before", "1", "-p", "1", "--yes"
    )
    assert held() == [(0, 4), (1, 4)]
    assert "0 records deleted" in shell.run("topic", "trim", name, "--keep", "1h", "--yes")
    assert "3 records deleted" in shell.run(
        "topic", "trim", name, "--keep", "1", "-p", "0", "--yes"
    )
    shell.run("topic", "trim", name, "--before", "end", "--yes")
    assert held() == [(4, 4), (4, 4)]
    assert "no partition 5" in shell.fails("topic", "trim", name, "--keep", "1", "-p", "5")


def test_what_was_created_is_reported_although_another_failed(shell: Shell) -> None:
    good, other = fresh("good"), fresh("good")
    outcome = shell.attempt("topic", "create", good, "bad name", other)
    assert outcome.returncode == 1
    assert outcome.stdout == f"Topic {good} created.\nTopic {other} created.\n"
    assert outcome.stderr.count("\n") == 1
    assert "bad name" in outcome.stderr
    outcome = shell.attempt("topic", "delete", good, "nowhere", other)
    assert outcome.stdout == f"Topic {good} deleted.\nTopic {other} deleted.\n"
    assert outcome.stderr == "penstock: Topic nowhere does not exist.\n"


def test_creating_twice_fails_unless_allowed(shell: Shell) -> None:
    name = fresh("orders")
    shell.run("topic", "create", name)
    assert shell.fails("topic", "create", name) == f"Topic {name} already exists."
    again = shell.json("topic", "create", name, "--if-missing")
    assert again == [{"name": name, "created": False}]


def test_what_does_not_exist_is_said_to(shell: Shell) -> None:
    for command in ("describe", "delete"):
        assert shell.fails("topic", command, "nowhere") == "Topic nowhere does not exist."
    assert "nowhere" in shell.fails("topic", "alter", "nowhere", "--set", "retention.ms=5")
    assert "nowhere" in shell.fails("topic", "alter", "nowhere", "-p", "5")


@pytest.mark.parametrize(
    "arguments",
    [
        ("topic", "create", "bad/name"),
        ("topic", "create", "x" * 250),
        ("topic", "create", fresh("t"), "--set", "no.such.setting=1"),
        ("topic", "create", fresh("t"), "--set", "retention.ms=soon"),
        ("topic", "create", fresh("t"), "--replicas", "3"),
    ],
)
def test_what_the_broker_refuses_is_one_sentence(shell: Shell, arguments: tuple[str, ...]) -> None:
    assert shell.fails(*arguments).endswith(".")
