"""Proves that `penstock cluster export` and `import` bring topics, settings, groups and queues to
another cluster, and set an offset only where it means the same record."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.client import Consumer
from penstock.client.admin import Admin
from penstock.client.queue import Queue
from penstock.model.ids import PartitionIndex, TopicName, TopicPartition
from tests.e2e.commands import Shell
from tests.e2e.conftest import MakeBroker
from tests.e2e.processes import Broker

pytestmark = pytest.mark.xdist_group("cluster-metadata")

RECORDS = 30
READ, ACKED = 12, 7


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Shell, Path]]:
    """A cluster with a topic whose group and queue are on their way, and what it exported."""
    folder = tmp_path_factory.mktemp("filled")
    broker = Broker(folder / "data").start()
    try:
        yield Shell(broker.bootstrap), fill(broker, folder / "metadata.json")
    finally:
        broker.close()


def fill(broker: Broker, file: Path) -> Path:
    shell = Shell(broker.bootstrap)
    shell.run("topic", "create", "orders", "--partitions", "1", "--set", "retention.ms=86400000")
    shell.run("topic", "create", "prices", "--partitions", "2", "--set", "cleanup.policy=compact")
    shell.run("topic", "create", "trimmed")
    for topic in ("orders", "trimmed"):
        shell.run("produce", topic, stdin="".join(f"{n}\n" for n in range(RECORDS)))
    shell.run("produce", "prices", "--key-separator", ":", stdin="a:1\nb:2\n")
    shell.run("config", "set", "log.retention.hours=48", "--all-nodes")
    with Admin(broker.bootstrap) as admin:
        admin.offsets.trim(dict.fromkeys(_places("trimmed"), 5))
        admin.groups.set_offsets("billing", dict.fromkeys(_places("orders"), READ))
        admin.groups.set_offsets("trims", dict.fromkeys(_places("trimmed"), 9))
        admin.groups.set_offsets("pricing", dict.fromkeys(_places("prices"), 1))
    with Queue("orders", group="packing", bootstrap=broker.bootstrap) as queue:
        for number, message in enumerate(queue, start=1):
            message.ack().result(60)
            if number == ACKED:
                break
    shell.run("queue", "settings", "packing", "share.delivery.count.limit=7")
    told = shell.run("cluster", "export", str(file))
    assert told == f"3 topics and 4 groups written to {file}.\n"
    return file


def _places(topic: str) -> list[TopicPartition]:
    return [TopicPartition(TopicName(topic), PartitionIndex(0))]


def outcomes(shell: Shell, *words: str) -> tuple[int, dict[str, str], str]:
    outcome = shell.attempt("cluster", "import", *words, "--json")
    found = json.loads(outcome.stdout)
    return outcome.returncode, {one["name"]: one["done"] for one in found}, outcome.stderr


def test_another_cluster_goes_on_where_the_first_one_was(
    filled: tuple[Shell, Path], make_broker: MakeBroker
) -> None:
    source, file = filled
    target = make_broker().start()
    shell = Shell(target.bootstrap)
    code, done, _ = outcomes(shell, str(file), "--topics")
    assert code == 0
    assert "log.retention.hours" in done.pop("all nodes")
    assert done == {
        "orders": "created",
        "prices": "created",
        "trimmed": "created",
    }
    again = outcomes(shell, str(file), "--topics")[1]
    assert again["orders"] == again["prices"] == "was there"
    for topic in ("orders", "prices"):
        of = ("config", "list", "--changed", "--topic", topic)
        assert shell.json(*of) == source.json(*of)
    # Before the records are there, every offset would be wrong.
    code, done, said = outcomes(shell, str(file), "--groups")
    assert (code, done["billing"], done["packing"]) == (1, "", "")
    assert "orders-0 ends at offset 0, before the group's 12" in said
    shell.run("produce", "orders", stdin="".join(f"{n}\n" for n in range(RECORDS)))
    shell.run("produce", "trimmed", stdin="".join(f"{n}\n" for n in range(RECORDS)))
    code, done, said = outcomes(shell, str(file))
    assert (code, done["billing"], done["packing"]) == (1, "1 offsets", "1 offsets")
    assert (done["trims"], done["pricing"]) == ("", "")
    assert "trimmed-0 begins at offset 0 and not at 5, so its offsets changed" in said
    assert "prices-0 is compacted, so its offsets changed" in said
    with Consumer("orders", group="billing", bootstrap=target.bootstrap) as consumer:
        assert next(iter(consumer)).value == str(READ).encode()
    with Queue("orders", group="packing", bootstrap=target.bootstrap) as queue:
        assert next(iter(queue)).value == str(ACKED).encode()
    assert shell.json("queue", "settings", "packing") == source.json("queue", "settings", "packing")


def test_what_is_in_the_way_is_named_and_left_alone(
    filled: tuple[Shell, Path], make_broker: MakeBroker
) -> None:
    _, file = filled
    target = make_broker().start()
    shell = Shell(target.bootstrap)
    shell.run("topic", "create", "orders", "--partitions", "2")
    keyed = "".join(f"k{n}:{n}\n" for n in range(200))
    shell.run("produce", "orders", "--key-separator", ":", stdin=keyed)
    code, done, said = outcomes(shell, str(file), "--topics")
    assert (code, done["orders"], done["prices"]) == (1, "", "created")
    assert "Topic orders exists with 2 partitions, but had 1." in said
    with Consumer("orders", group="billing", bootstrap=target.bootstrap) as consumer:
        next(iter(consumer))
        code, done, said = outcomes(shell, str(file), "--groups")
    assert (code, done["billing"]) == (1, "")
    assert "Group billing has active members" in said


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"\xff\xfe", b"[1, 2]", b'{"format": "penstock-metadata", "version": 2}'],
)
def test_a_file_that_is_no_backup_is_refused(
    filled: tuple[Shell, Path], tmp_path: Path, content: bytes
) -> None:
    shell, _ = filled
    wrong = tmp_path / "wrong.json"
    wrong.write_bytes(content)
    refused = shell.attempt("cluster", "import", str(wrong))
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "It is not a backup of a cluster's metadata" in refused.stderr


def test_no_file_is_overwritten(filled: tuple[Shell, Path], tmp_path: Path) -> None:
    shell, file = filled
    before = file.read_bytes()
    refused = shell.attempt("cluster", "export", str(file))
    assert (refused.returncode, file.read_bytes()) == (1, before)
    assert "exists already" in refused.stderr
    missing = shell.attempt("cluster", "export", str(tmp_path / "none" / "file.json"))
    assert "can't be written: no such file or directory" in missing.stderr
