"""`penstock produce` and `penstock consume` against a real broker."""

import contextlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from penstock.client import Producer
from penstock.client.wire.cluster import WireCluster
from penstock.client.wire.records import RecordProducer
from penstock.client.wire.settings import WireSettings
from penstock.testing import Broker
from tests.e2e import processes
from tests.e2e.commands import COMMAND_TIMEOUT_S, Shell, fresh
from tests.e2e.stopwatch import check_quick, seconds_of


@pytest.fixture
def shell(penstock_session_broker: Broker) -> Shell:
    return Shell.at(penstock_session_broker)


@pytest.fixture
def topic(penstock_session_broker: Broker) -> str:
    # Some tests send records with old timestamps, which retention would soon remove.
    return penstock_session_broker.create_topic(fresh("readings"), settings={"retention.ms": "-1"})


def lines(text: str) -> list[str]:
    return text.splitlines()


def test_lines_go_in_and_come_out_in_order(shell: Shell, topic: str) -> None:
    sent = [f"reading {number}" for number in range(1000)]
    outcome = shell.json("produce", topic, stdin="\n".join(sent) + "\n")
    assert outcome == {"topic": topic, "created": False, "produced": 1000}
    assert lines(shell.run("consume", topic)) == sent


def test_a_file_can_be_produced(shell: Shell, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "readings.txt"
    file.write_text("a\nb")
    shell.run("produce", topic, str(file))
    assert lines(shell.run("consume", topic)) == ["a", "b"]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_compression_works(shell: Shell, topic: str, codec: str) -> None:
    shell.run("produce", topic, "-z", codec, stdin="x" * 1000 + "\n")
    assert shell.run("consume", topic) == "x" * 1000 + "\n"


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acknowledgement_works(shell: Shell, topic: str, acks: str) -> None:
    shell.run("produce", topic, "--acks", acks, stdin="x\n")
    shell.run("produce", topic, stdin="last\n")
    assert lines(shell.run("consume", topic)) == ["x", "last"]


def test_keys_headers_and_times_travel_through_json(shell: Shell, topic: str) -> None:
    record = {
        "key": "k",
        "value": "v",
        "headers": [["a", "1"], ["b", None], ["c", {"base64": "/w=="}]],
        "partition": 0,
        "timestamp": 1_700_000_000_000,
    }
    binary = {"key": None, "value": "/wA=", "value_format": "base64"}
    shell.run(
        "produce", topic, "--input", "json", stdin=f"{json.dumps(record)}\n{json.dumps(binary)}\n"
    )
    out = shell.run("consume", topic, "--json")
    first, second = (json.loads(line) for line in lines(out))
    assert first == record | {"topic": topic, "offset": 0}
    assert (second["key"], second["value"], second["value_format"]) == (None, "/wA=", "base64")
    copy = fresh("copy")
    shell.run("topic", "create", copy, "--set", "retention.ms=-1")
    shell.run("produce", copy, "--input", "json", stdin=out)
    again = [json.loads(line) for line in lines(shell.run("consume", copy, "--json"))]
    assert again == [first | {"topic": copy}, second | {"topic": copy}]


def test_a_copy_into_fewer_partitions_keeps_the_order_of_each(
    shell: Shell, penstock_session_broker: Broker
) -> None:
    origin = penstock_session_broker.create_topic(fresh("origin"), partitions=6)
    for number in range(6):
        shell.run("produce", origin, "-p", str(number), stdin=f"{number}a\n{number}b\n")
    copy = penstock_session_broker.create_topic(fresh("copy"), partitions=4)
    shell.run("produce", copy, "--input", "json", stdin=shell.run("consume", origin, "--json"))
    for number in range(4):
        found = lines(shell.run("consume", copy, "-p", str(number)))
        expected = [f"{one}{part}" for one in range(number, 6, 4) for part in "ab"]
        assert sorted(found) == expected
        assert all(found.index(f"{one[0]}a") < found.index(f"{one[0]}b") for one in expected)


def test_what_was_written_is_reported_without_a_terminal_too(shell: Shell, topic: str) -> None:
    outcome = shell.attempt("produce", topic, stdin="a\nb\n")
    assert (outcome.stdout, outcome.stderr) == ("", f"2 records produced to topic {topic}.\n")
    new = fresh("new")
    told = shell.attempt("produce", new, stdin="a\n").stderr
    assert told == (
        f"Topic {new} did not exist: created with 1 partition.\n1 record produced to topic {new}.\n"
    )
    another = fresh("new")
    assert shell.json("produce", another, stdin="a\n") == {
        "topic": another,
        "created": True,
        "produced": 1,
    }


def test_a_key_goes_where_our_other_producer_puts_it(
    shell: Shell, penstock_session_broker: Broker
) -> None:
    topics = [penstock_session_broker.create_topic(fresh("keys"), partitions=7) for _ in range(2)]
    keys = [f"key {number}" for number in range(40)]
    shell.run("produce", topics[0], "-k", ":", stdin="".join(f"{key}:\n" for key in keys))
    with Producer(penstock_session_broker.bootstrap) as producer:
        for key in keys:
            producer.send(topics[1], b"", key=key.encode())
    ours, theirs = (set(lines(shell.run("consume", one, "-f", r"%k %p\n"))) for one in topics)
    assert ours == theirs


def test_one_record_waits_for_nothing_but_the_broker(
    penstock_session_broker: Broker, topic: str
) -> None:
    """librdkafka's idempotent producer would wait for half a second."""

    def produce() -> None:
        settings = WireSettings(bootstrap=penstock_session_broker.bootstrap)
        with WireCluster(settings) as cluster, RecordProducer(cluster, topic) as producer:
            producer.send(b"x")

    check_quick(lambda: seconds_of(produce), 0.4)


def test_a_template_writes_as_kcat_does(shell: Shell, topic: str) -> None:
    shell.run("produce", topic, "-k", ":", "--timestamp", "5", "-H", "a=1", stdin="k:v\nl:\n")
    shown = shell.run("consume", topic, "-f", r"%t-%p@%o %T [%h] %k=%s (%K,%S)\n")
    assert lines(shown) == [
        f"{topic}-0@0 5 [a=1] k=v (1,1)",
        f"{topic}-0@1 5 [a=1] l= (1,0)",
    ]


def test_keys_formats_and_nulls_on_lines(shell: Shell, topic: str) -> None:
    shell.run(
        "produce",
        topic,
        *("-k", ":", "--null", "NULL", "-f", "hex", "-H", "unit=C"),
        stdin="a:00ff\nb:NULL\n",
    )
    shown = shell.run("consume", topic, "-k", "=", "-f", "base64", "--null", "nothing")
    assert lines(shown) == ["a=AP8=", "b=nothing"]
    assert "[unit=C]" in shell.run("consume", topic, "--details", "-f", "hex")


def test_positions_and_ends(shell: Shell, topic: str) -> None:
    stamps = [1_700_000_000_000 + 1000 * number for number in range(10)]
    records = [json.dumps({"value": str(n), "timestamp": stamps[n]}) for n in range(10)]
    shell.run("produce", topic, "-i", "json", stdin="\n".join(records))

    def read(*arguments: str) -> list[int]:
        return [int(line) for line in lines(shell.run("consume", topic, *arguments))]

    assert read("--from", "7") == [7, 8, 9]
    assert read("--from", "-2") == [8, 9]
    assert read("--from", f"@{stamps[6]}") == [6, 7, 8, 9]
    assert read("--from", "2023-11-14T22:13:25Z") == [5, 6, 7, 8, 9]
    assert read("--from", "2", "--until", "5") == [2, 3, 4]
    assert read("--until", f"@{stamps[2]}") == [0, 1]
    assert read("--max", "3") == [0, 1, 2]
    assert read("--from", "end") == []
    assert read("--from", "1h") == []
    assert read("--from", "99") == []


def test_single_partitions_can_be_read(shell: Shell, penstock_session_broker: Broker) -> None:
    name = penstock_session_broker.create_topic(fresh("readings"), partitions=3)
    for number in range(3):
        shell.run("produce", name, "-p", str(number), stdin=f"{number}\n")
    assert sorted(lines(shell.run("consume", name, "-p", "0", "-p", "2"))) == ["0", "2"]
    assert sorted(lines(shell.run("consume", name))) == ["0", "1", "2"]
    sentence = shell.fails("consume", name, "-p", "7")
    assert sentence == f"Topic {name} has no partition 7."


def test_follow_waits_for_more(shell: Shell, topic: str) -> None:
    shell.run("produce", topic, stdin="before\n")
    with shell.start("consume", topic, "--follow", "--max", "2") as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "before\n"
        shell.run("produce", topic, stdin="after\n")
        assert reader.communicate(timeout=COMMAND_TIMEOUT_S) == ("after\n", "")
        assert reader.returncode == 0


def test_follow_stops_when_nothing_comes_for_long_enough(shell: Shell, topic: str) -> None:
    """It begins at the end: on a slow machine, records might come later than it waits for them."""
    shell.run("produce", topic, stdin="before\n")
    began = time.monotonic()
    assert shell.run("consume", topic, "--follow", "--from", "end", "--idle", "1") == ""
    assert time.monotonic() - began >= 1


def test_follow_from_the_end_sees_only_what_is_new(shell: Shell, topic: str) -> None:
    shell.run("produce", topic, stdin="before\n")
    with shell.start("consume", topic, "--follow", "--from", "end", "--max", "1") as reader:
        deadline = time.monotonic() + COMMAND_TIMEOUT_S
        # The reader says nothing when it has found its place, so records come until it has one.
        while reader.poll() is None and time.monotonic() < deadline:
            shell.run("produce", topic, stdin="after\n")
        assert reader.communicate(timeout=COMMAND_TIMEOUT_S)[0] == "after\n"


def test_a_group_goes_on_where_it_stopped(shell: Shell, topic: str) -> None:
    group = fresh("group")
    shell.run("produce", topic, stdin="1\n2\n3\n")
    assert lines(shell.run("consume", topic, "-g", group, "--max", "2")) == ["1", "2"]
    assert lines(shell.run("consume", topic, "-g", group)) == ["3"]
    assert lines(shell.run("consume", topic, "-g", group)) == []


def test_a_reader_that_has_seen_enough_is_no_failure(shell: Shell, topic: str) -> None:
    shell.run("produce", topic, stdin="x" * 1000 + "\n")
    for _ in range(3):
        shell.run("produce", topic, stdin=("y" * 200 + "\n") * 5000)
    with shell.start("consume", topic) as reader:
        assert reader.stdout is not None
        reader.stdout.readline()
        reader.stdout.close()
        assert reader.stderr is not None
        assert reader.stderr.read() == ""
        assert reader.wait(COMMAND_TIMEOUT_S) == 0


def test_ctrl_c_ends_a_follower_quietly(shell: Shell, topic: str) -> None:
    shell.run("produce", topic, stdin="x\n")
    with shell.start("consume", topic, "--follow") as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "x\n"
        reader.send_signal(signal.SIGINT)
        _, said = reader.communicate(timeout=COMMAND_TIMEOUT_S)
        assert (reader.returncode, said.strip()) == (130, "")


def test_ctrl_c_delivers_what_was_read_before_it(shell: Shell, topic: str) -> None:
    with shell.start("produce", topic, stdin=subprocess.PIPE) as producer:
        assert producer.stdin is not None
        producer.stdin.write("one\ntwo\n")
        producer.stdin.flush()
        deadline = time.monotonic() + COMMAND_TIMEOUT_S
        while shell.run("consume", topic) != "one\ntwo\n" and time.monotonic() < deadline:
            pass
        producer.send_signal(signal.SIGINT)
        assert producer.wait(COMMAND_TIMEOUT_S) == 130
        assert producer.stderr is not None
        assert producer.stderr.read().strip() == ""
    assert shell.run("consume", topic) == "one\ntwo\n"


def test_a_topic_that_does_not_exist_is_not_created_by_reading(shell: Shell) -> None:
    assert shell.fails("consume", "nowhere") == "Topic nowhere does not exist."
    assert "nowhere" not in shell.run("topic", "list").split()


def test_records_that_the_broker_refuses_fail_the_command(
    shell: Shell, penstock_session_broker: Broker
) -> None:
    name = penstock_session_broker.create_topic(
        fresh("small"), settings={"max.message.bytes": "500"}
    )
    sentence = shell.fails("produce", name, stdin="x" * 5000 + "\n")
    assert sentence.startswith("1 of 1 records were not delivered")
    keyless = penstock_session_broker.create_topic(
        fresh("compacted"), settings={"cleanup.policy": "compact"}
    )
    assert "not delivered" in shell.fails("produce", keyless, stdin="x\n")


def test_an_unknown_partition_fails_the_command(shell: Shell, topic: str) -> None:
    assert "partition" in shell.fails("produce", topic, "-p", "9", stdin="x\n")


def test_a_bad_line_is_named_and_nothing_hangs(shell: Shell, topic: str) -> None:
    sentence = shell.fails("produce", topic, "-k", ":", stdin="a:1\nb\n")
    assert sentence.startswith("Line 2 of standard input can't be produced")


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a pseudo-terminal")
def test_a_terminal_sees_a_progress_bar(shell: Shell, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "readings.txt"
    file.write_text("x\n" * 1000)
    ours, theirs = os.openpty()
    with subprocess.Popen(
        processes.command("produce", topic, str(file)),
        env=processes.clean_environment(shell.environment | {"TERM": "xterm", "COLUMNS": "100"}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
    ) as producer:
        os.close(theirs)
        shown = all_that_is_shown(ours)
        assert producer.wait(COMMAND_TIMEOUT_S) == 0
    assert "Producing" in shown
    assert "1,000 records produced" in shown


def all_that_is_shown(terminal: int) -> str:
    """Until the last program that writes there has ended; a slow one draws its bar many times."""
    shown = b""
    with os.fdopen(terminal, "rb", buffering=0) as screen, contextlib.suppress(OSError):
        # Linux has an error for the end.
        while part := screen.read(4_096):
            shown += part
    return shown.decode()
