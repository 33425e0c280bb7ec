"""`penstock work` and `penstock queue` against real brokers, beside another client's consumer."""

import json
import os
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from penstock.client import Producer
from tests.e2e.cluster_nodes import Cluster
from tests.e2e.commands import COMMAND_TIMEOUT_S, Shell, fresh
from tests.e2e.processes import Broker
from tests.e2e.topics import create_topic
from tests.waiting import wait_until

# As short as a lease can be here, so that tests see it end.
LEASE_MS = 1_000
SETTINGS = {
    "group.share.min.record.lock.duration.ms": str(LEASE_MS),
    "group.share.assignment.interval.ms": "0",
    "group.share.min.assignment.interval.ms": "0",
}
RECORDS = 300
BURST = 20


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    flags = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]
    made = Broker(tmp_path_factory.mktemp("queues") / "data", *flags).start()
    yield made
    made.close()


@pytest.fixture
def shell(broker: Broker) -> Shell:
    return Shell(broker.bootstrap)


@pytest.fixture
def topic(broker: Broker) -> str:
    return create_topic(broker.bootstrap, partitions=3)


@pytest.fixture
def group() -> str:
    return fresh("workers")


def produce(bootstrap: str, topic: str, *values: str) -> None:
    with Producer(bootstrap) as producer:
        for value in values:
            producer.send(topic, value.encode())


class Worker:
    """A running `penstock work --json`; `outcomes` are its lines so far."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.outcomes: list[dict[str, Any]] = []
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.outcomes.append(json.loads(line))

    def acked(self) -> list[tuple[int, int]]:
        """Partition and offset."""
        done = [one for one in self.outcomes if one["outcome"] == "acked"]
        return [(one["partition"], one["offset"]) for one in done]

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        code = self.process.wait(COMMAND_TIMEOUT_S)
        self._reading.join(COMMAND_TIMEOUT_S)
        return code


@contextmanager
def working(shell: Shell, topic: str, group: str, *arguments: str) -> Iterator[Worker]:
    """Arguments are options, then `--` and the command."""
    with shell.start(
        "work", topic, "--group", group, "--json", *arguments, stderr=subprocess.DEVNULL
    ) as process:
        yield Worker(process)


def worked(shell: Shell, topic: str, group: str, *arguments: str) -> list[dict[str, Any]]:
    """The outcomes of a worker that ends by itself."""
    outcome = shell.attempt("work", topic, "--group", group, "--json", *arguments)
    assert outcome.returncode == 0, outcome
    return [json.loads(line) for line in outcome.stdout.splitlines()]


def queue_lag(shell: Shell, group: str) -> int | None:
    found: int | None = shell.json("queue", "describe", group)["lag"]
    return found


def test_a_command_gets_the_record_and_its_exit_code_settles_it(
    shell: Shell, topic: str, group: str, tmp_path: Path
) -> None:
    line = {"value": "hello", "key": "k", "headers": [["kind", "greeting"]], "partition": 1}
    shell.run("produce", topic, "--input", "json", stdin=json.dumps(line) + "\n")
    script = f"cat > {tmp_path}/value; env | grep ^PENSTOCK_ | sort > {tmp_path}/variables"
    (found,) = worked(shell, topic, group, "--max", "1", "--", "sh", "-c", script)
    assert (found["outcome"], found["partition"], found["attempt"]) == ("acked", 1, 1)
    assert (tmp_path / "value").read_text() == "hello"
    variables = dict(one.split("=", 1) for one in (tmp_path / "variables").read_text().splitlines())
    assert variables.pop("PENSTOCK_TIMESTAMP").isdecimal()
    assert variables.pop("PENSTOCK_BOOTSTRAP")
    assert variables == {
        "PENSTOCK_TOPIC": topic,
        "PENSTOCK_PARTITION": "1",
        "PENSTOCK_OFFSET": "0",
        "PENSTOCK_ATTEMPT": "1",
        "PENSTOCK_KEY": "k",
        "PENSTOCK_HEADERS": '[["kind", "greeting"]]',
    }
    assert queue_lag(shell, group) == 0


def test_a_command_that_fails_is_tried_up_to_the_delivery_limit(
    shell: Shell, topic: str, group: str
) -> None:
    shell.run("queue", "settings", group, "delivery.limit=3")
    produce(shell.environment["PENSTOCK_BOOTSTRAP"], topic, "good", "bad", "worse")
    script = "case $(cat) in good) exit 0;; bad) exit 1;; worse) exit 65;; esac"
    found = worked(
        shell, topic, group, "--idle", "3", "--reject-on", "65", "--", "sh", "-c", script
    )
    assert Counter((one["outcome"], one["attempt"], one["exit_code"]) for one in found) == {
        ("acked", 1, 0): 1,
        ("released", 1, 1): 1,
        ("released", 2, 1): 1,
        ("released", 3, 1): 1,
        ("rejected", 1, 65): 1,
    }
    assert queue_lag(shell, group) == 0


def test_the_lease_of_a_slow_command_is_renewed(shell: Shell, topic: str, group: str) -> None:
    """Another worker waits for the record all the time, and does not get it."""
    shell.run("queue", "settings", group, f"lock.duration={LEASE_MS}ms")
    produce(shell.environment["PENSTOCK_BOOTSTRAP"], topic, "slow")
    with ExitStack() as workers:
        both = [
            workers.enter_context(working(shell, topic, group, "--", "sleep", "5"))
            for _ in range(2)
        ]
        wait_until("one of them is done", lambda: both[0].outcomes or both[1].outcomes)
        assert [one.stop() for one in both] == [0, 0]
    (found,) = [*both[0].outcomes, *both[1].outcomes]
    assert (found["outcome"], found["attempt"]) == ("acked", 1)
    assert found["seconds"] >= 5 * LEASE_MS / 1000


def test_what_a_killed_worker_had_is_done_by_another_one(
    shell: Shell, group: str, tmp_path: Path
) -> None:
    # With more, some would wait until the coordinator misses the killed member.
    topic = create_topic(shell.environment["PENSTOCK_BOOTSTRAP"], partitions=1)
    produce(shell.environment["PENSTOCK_BOOTSTRAP"], topic, *map(str, range(6)))
    script = f"echo $$ > {tmp_path}/pid-$$; exec sleep 1000"
    with working(shell, topic, group, "-c", "2", "--", "sh", "-c", script) as killed:
        wait_until("two commands run", lambda: len(list(tmp_path.iterdir())) == 2)
        killed.process.kill()
        killed.process.wait(COMMAND_TIMEOUT_S)
        found = worked(shell, topic, group, "--max", "6", "-c", "2", "--", "true")
    for one in tmp_path.iterdir():
        os.kill(int(one.read_text()), signal.SIGKILL)
    assert len(found) == len(places(found)) == 6
    assert Counter(one["attempt"] for one in found) == {1: 4, 2: 2}
    assert queue_lag(shell, group) == 0


def places(outcomes: list[dict[str, Any]]) -> set[tuple[int, int]]:
    return {(one["partition"], one["offset"]) for one in outcomes if one["outcome"] == "acked"}


def test_a_worker_that_is_stopped_finishes_what_runs_and_takes_no_more(
    shell: Shell, topic: str, group: str, tmp_path: Path
) -> None:
    produce(shell.environment["PENSTOCK_BOOTSTRAP"], topic, *map(str, range(4)))
    script = f"touch {tmp_path}/$PENSTOCK_PARTITION-$PENSTOCK_OFFSET; sleep 1"
    with working(shell, topic, group, "--", "sh", "-c", script) as worker:
        wait_until("a command runs", lambda: list(tmp_path.iterdir()))
        # As a terminal sends Ctrl-C, and a service manager SIGTERM: commands do not get it.
        assert worker.stop(signal.SIGINT) == 0
    assert [one["outcome"] for one in worker.outcomes] == ["acked"] * len(worker.outcomes)
    assert len(worker.outcomes) == len(list(tmp_path.iterdir()))
    assert queue_lag(shell, group) == 4 - len(worker.outcomes)


@pytest.mark.timeout(600)
def test_three_workers_and_another_client_share_a_queue_and_each_record_is_acked_once(
    shell: Shell, topic: str, group: str
) -> None:
    bootstrap = shell.environment["PENSTOCK_BOOTSTRAP"]
    shell.run("queue", "settings", group, "start=earliest")
    consumer = confluent_kafka.ShareConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "share.acknowledgement.mode": "explicit",
        }
    )
    accepted: list[tuple[int, int]] = []
    with ExitStack() as workers:
        ours = [
            workers.enter_context(working(shell, topic, group, "-c", "2", "--", "true"))
            for _ in range(3)
        ]
        consumer.subscribe([topic])
        produced = 0

        def all_acked() -> bool:
            """In bursts, until everybody had something to do."""
            nonlocal produced
            has_work = bool(accepted) and all(one.outcomes for one in ours)
            if produced < RECORDS or not has_work:
                produce(bootstrap, topic, *map(str, range(BURST)))
                produced += BURST
            for message in consumer.poll(0.2):
                assert message.error() is None
                consumer.acknowledge(message, confluent_kafka.AcknowledgeType.ACCEPT)
                accepted.append((message.partition() or 0, message.offset() or 0))
            consumer.commit_sync()
            acked = len(accepted) + sum(len(one.acked()) for one in ours)
            return has_work and acked >= produced

        wait_until("everything is acked", all_acked, 300)
        consumer.close()
        assert [one.stop() for one in ours] == [0, 0, 0]
    acked = [*accepted, *(place for one in ours for place in one.acked())]
    assert len(acked) == len(set(acked)) == produced
    assert {one["outcome"] for worker in ours for one in worker.outcomes} == {"acked"}
    assert queue_lag(shell, group) == 0


@pytest.mark.timeout(600)
def test_workers_go_on_when_the_broker_is_killed(tmp_path: Path, group: str) -> None:
    flags = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]
    broker = Broker(tmp_path / "data", *flags).start()
    try:
        topic = create_topic(broker.bootstrap, partitions=2)
        shell = Shell(broker.bootstrap)
        produce(broker.bootstrap, topic, *map(str, range(60)))
        with working(shell, topic, group, "-c", "3", "--", "sleep", "0.1") as worker:
            wait_until("some are done", lambda: len(worker.outcomes) >= 15)
            broker.kill()
            broker.start()
            wait_until("all are done", lambda: len(places(worker.outcomes)) == 60)
            assert worker.stop() == 0
        assert queue_lag(shell, group) == 0
    finally:
        broker.close()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_workers_follow_the_leaders_of_three_nodes_when_one_is_killed(
    tmp_path: Path, group: str
) -> None:
    with Cluster(tmp_path) as cluster:
        shell = Shell(cluster.bootstrap)
        topic = fresh("jobs")
        shell.run("topic", "create", topic, "-p", "3", "-r", "3")
        with Producer(cluster.bootstrap) as producer:
            for number in range(90):
                producer.send(topic, b"%d" % number, partition=number % 3)
        with working(shell, topic, group, "-c", "3", "--", "sleep", "0.2") as worker:
            wait_until("some are done", lambda: len(worker.outcomes) >= 20)
            led = {one["partition"]: one["leader"] for one in partitions(shell, topic)}
            cluster.nodes[led[0]].kill()
            wait_until("all are done", lambda: len(places(worker.outcomes)) == 90)
            assert worker.stop() == 0
        # Leases outlive their leader: what was at work when it died is acked with the next one.
        assert {one["outcome"] for one in worker.outcomes} <= {"acked", "unknown"}
        # An answer with a lease may have died with the leader; then the record comes once more.
        assert {one["attempt"] for one in worker.outcomes} <= {1, 2}


def partitions(shell: Shell, topic: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = shell.json("topic", "describe", topic)["partitions"]
    return found


def test_queues_are_listed_and_described(shell: Shell, topic: str, group: str) -> None:
    produce(shell.environment["PENSTOCK_BOOTSTRAP"], topic, "a", "b", "c")
    assert len(worked(shell, topic, group, "--max", "1", "--", "true")) == 1
    listed = {"group": group, "state": "empty", "topics": [topic], "members": 0, "lag": 2}
    assert listed in shell.json("queue", "list")
    rows = [line.split() for line in shell.run("queue", "list").splitlines()]
    assert [group, "empty", topic, "0", "2"] in rows
    with working(shell, topic, group, "--", "sleep", "1000"):
        wait_until("it joins", lambda: shell.json("queue", "describe", group)["members"])
        found = shell.json("queue", "describe", group)
        (member,) = found["members"]
        assert found["state"] == "stable"
        assert member["topics"] == [topic]
        assert (member["client"], member["host"]) == ("penstock", "/127.0.0.1")
        text = shell.run("queue", "describe", group)
        assert f"Queue {group} is stable, 1 member, lag 2, epoch" in text
        rows = [line.split() for line in text.splitlines()[2:]]
        assert [(row[0], row[1], row[4]) for row in rows] == [
            (topic, str(partition), "1") for partition in range(3)
        ]
        assert member["member"] in shell.run("queue", "describe", group, "--members")


def test_single_messages_are_handled_by_their_tokens(
    broker: Broker, shell: Shell, topic: str, group: str
) -> None:
    queue = group, topic
    produce(broker.bootstrap, topic, "a", "b", "c")
    messages = shell.json("queue", "poll", *queue, "-n", "10", "--wait", "20", "--lease", "10m")
    while len(messages) < 3:
        messages += shell.json("queue", "poll", *queue, "-n", "10", "--lease", "10m")
    assert sorted(each["value"] for each in messages) == ["a", "b", "c"]
    tokens = [each["token"] for each in messages]
    assert shell.run("queue", "ack", *queue, tokens[0]) == "ack: 1 message of 1\n"
    again = shell.fails("queue", "ack", *queue, tokens[0])
    assert again.startswith(tokens[0])
    assert "Nobody gets the record any more" in again
    assert shell.json("queue", "extend", *queue, tokens[1], "--lease", "1h")[0]["outcome"] == "ok"
    lines = "\n".join(tokens[1:])
    assert shell.run("queue", "nack", *queue, "-", "--delay", "0s", stdin=lines).endswith("of 2\n")
    peeked = shell.json("queue", "peek", *queue)
    assert [each["attempt"] for each in peeked] == [1, 1]
    assert "token" not in peeked[0]
    shell.run("queue", "pause", *queue)
    assert shell.json("queue", "poll", *queue) == []
    stats = shell.json("queue", "stats", *queue)
    assert (stats["paused"], stats["ready"], stats["leased"]) == (True, 2, 0)
    shell.run("queue", "resume", *queue)
    (message,) = shell.json("queue", "poll", *queue, "--wait", "20")
    assert message["attempt"] == 2
    shell.run("queue", "reject", *queue, message["token"])
    assert shell.json("queue", "purge", *queue, "--yes") == {"purged": 1}
    table = shell.run("queue", "stats", *queue)
    assert "PARTITION  READY  LEASED" in table
    assert "unit" in shell.fails("queue", "nack", *queue, "x", "--delay", "5", code=2)


def test_settings_of_a_queue_are_shown_changed_and_reset(shell: Shell, group: str) -> None:
    def shown(name: str) -> tuple[str, str]:
        listed = {one["name"]: one for one in shell.json("queue", "settings", group)}
        return listed[name]["value"], listed[name]["source"]

    name = "share.record.lock.duration.ms"
    assert shown(name) == ("30000", "default")
    shell.run("queue", "settings", group, "lock.duration=20s", "share.delivery.count.limit=7")
    assert shown(name) == ("20000", "dynamic group")
    assert shown("share.delivery.count.limit") == ("7", "dynamic group")
    text = shell.run("queue", "settings", group, "--reset", "lock.duration")
    assert f"{name} " in text
    assert not [line for line in text.splitlines() if line.startswith("consumer.")]
    assert shown(name) == ("30000", "default")


def test_a_new_queue_of_ours_starts_with_the_oldest_record_unless_it_is_set_otherwise(
    shell: Shell, topic: str, group: str
) -> None:
    bootstrap = shell.environment["PENSTOCK_BOOTSTRAP"]
    produce(bootstrap, topic, "before")
    assert len(worked(shell, topic, group, "--idle", "2", "--", "true")) == 1
    other = fresh("late")
    shell.run("queue", "settings", other, "start=latest")
    assert worked(shell, topic, other, "--idle", "2", "--", "true") == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("work", "missing", "-g", "g", "--", "true"), "Topic missing does not exist."),
        (("work", "TOPIC", "-g", "g", "--", "nothing"), "nothing can't be started: there is no"),
        (("work", "TOPIC", "-g", "", "--", "true"), "A group's name must not be empty."),
        (("queue", "describe", "missing"), "Group missing does not exist."),
        (("queue", "settings", "g", "lock.duration=1ms"), "The broker refused the settings of"),
    ],
)
def test_what_does_not_work_is_told_in_a_sentence(
    shell: Shell, topic: str, arguments: tuple[str, ...], said: str
) -> None:
    assert shell.fails(*(topic if one == "TOPIC" else one for one in arguments)).startswith(said)


def test_a_group_of_another_kind_is_told(shell: Shell, topic: str) -> None:
    name = fresh("classic")
    produce(shell.environment["PENSTOCK_BOOTSTRAP"], topic, "a")
    shell.run("consume", topic, "--group", name)
    sentence = f"Group {name} exists and is not a queue (a share group)."
    assert shell.fails("work", topic, "-g", name, "--", "true") == sentence
    assert shell.fails("queue", "describe", name) == sentence


def test_a_broker_that_does_not_answer_is_told() -> None:
    shell = Shell("127.0.0.1:1")
    for arguments in (
        ("work", "t", "-g", "g", "--timeout", "1", "--", "true"),
        ("queue", "list"),
        ("queue", "describe", "g"),
        ("queue", "settings", "g"),
    ):
        assert shell.fails(*arguments).startswith("No broker answers at 127.0.0.1:1: ")
