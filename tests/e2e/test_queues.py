"""Queues under real clients: consumers, brokers and leaders that die, and Kafka's own tools.

Whatever dies: everything is delivered, nobody has a record together with another, none is accepted
twice, and its attempts are counted one by one.
"""

import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from penstock.protocol.kafka.messages.find_coordinator import FindCoordinatorRequest
from tests.documents import ROOT, Document
from tests.e2e.beside_kafka import say
from tests.e2e.clients.java import JVM_FLAGS, Java, install
from tests.e2e.cluster_nodes import Cluster
from tests.e2e.conftest import MakeBroker, MakeTopic
from tests.e2e.processes import Broker, run_tool
from tests.e2e.queue_members import ConfluentShare, JavaShare, QueueLedger, WorkShare, produce
from tests.e2e.queue_session import configure_group
from tests.e2e.topics import create_topic
from tests.waiting import wait_until

pytest_plugins = ("tests.e2e.clients.java.fixtures",)
pytestmark = [pytest.mark.xdist_group("cluster-clients"), pytest.mark.timeout(300)]

TOPIC, GROUP, STATE = "jobs", "workers", "__share_group_state"
PARTITIONS = 3
DONE_S = 90.0
KILLS = 3
# The longest that brokers allow by default.
LEASE_MS = 60_000
# Two heartbeats.
SESSION_MS = 12_000
TOOLS = "org.apache.kafka.tools"
SHARE_GROUPS = f"{TOOLS}.consumer.group.ShareGroupCommand"
CONSOLE = f"{TOOLS}.consumer.ConsoleShareConsumer"
GROUPS = f"{TOOLS}.GroupsCommand"
# Polls once, says what it got, and never acknowledges it.
HOLDER = """
import sys, time
from confluent_kafka import ShareConsumer
bootstrap, topic, group = sys.argv[1:]
consumer = ShareConsumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 3})
consumer.subscribe([topic])
while not (messages := consumer.poll(0.2)):
    pass
for each in messages:
    print(each.partition(), each.offset(), each.delivery_count(), flush=True)
print("holds them", flush=True)
time.sleep(600)
"""


def coordinator_of(bootstrap: str, group: str) -> str:
    find = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
    (found,) = say(bootstrap, ApiKey.FIND_COORDINATOR, 4, find).coordinators
    return f"{found.host}:{found.port}"


def lags(bootstrap: str, group: str) -> list[int]:
    """What is left in each queue, as the group's coordinator says."""
    of_group = DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)
    request = DescribeShareGroupOffsetsRequest(groups=[of_group])
    coordinator = coordinator_of(bootstrap, group)
    (answer,) = say(coordinator, ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, request).groups
    return [part.lag for topic in answer.topics for part in topic.partitions]


def all_done(bootstrap: str, group: str, ledger: QueueLedger) -> None:
    def are_done() -> bool:
        assert ledger.violations == []
        try:
            return lags(bootstrap, group) == [0] * PARTITIONS
        except OSError:
            return False

    wait_until("the end of the queue", are_done, DONE_S)


def members_of_both(
    java: Java, bootstrap: str, topic: str, group: str, ledger: QueueLedger
) -> list[ConfluentShare | JavaShare]:
    return [
        ConfluentShare("confluent-1", bootstrap, topic, group, ledger),
        JavaShare(java, "java-1", bootstrap, topic, group, ledger),
        ConfluentShare("confluent-2", bootstrap, topic, group, ledger),
        JavaShare(java, "java-2", bootstrap, topic, group, ledger),
    ]


@pytest.fixture
def ledger() -> QueueLedger:
    return QueueLedger()


# One broker


def test_clients_of_two_kinds_work_on_one_queue(
    broker: Broker, make_topic: MakeTopic, group: str, java: Java, ledger: QueueLedger
) -> None:
    topic = make_topic(partitions=PARTITIONS)
    configure_group(broker.bootstrap, group, share_auto_offset_reset="earliest")
    values = [kind(number) for number in range(900)]
    places = produce(broker.bootstrap, topic, values[:300], PARTITIONS)
    members = members_of_both(java, broker.bootstrap, topic, group, ledger)
    for member in members:
        member.start()
    ledger.wait_until("records for all", lambda: len(ledger.by_member) > 0)
    # All of them have their partitions by now, or soon: what comes is shared.
    for start in range(300, 900, 20):
        places |= produce(broker.bootstrap, topic, values[start : start + 20], PARTITIONS)
    ledger.wait_until("everything", lambda: ledger.ended == places)
    all_done(broker.bootstrap, group, ledger)
    for member in members:
        member.stop()
    ledger.check()
    assert not ledger.unsure
    rejected = sum(value.startswith("reject") for value in values)
    released = sum(value.startswith("release") for value in values)
    assert len(ledger.rejected) == rejected
    assert Counter(map(len, ledger.attempts.values())) == {1: 900 - released, 2: released}
    assert len(ledger.by_member) > 1
    java_got = sum(count for name, count in ledger.by_member.items() if name.startswith("java"))
    assert bool(ledger.renewed) == bool(java_got)


def kind(number: int) -> str:
    if number % 50 == 7:
        return f"reject {number}"
    if number % 10 == 3:
        return f"release {number}"
    return f"renew {number}" if number % 10 == 5 else f"accept {number}"


def test_what_a_killed_consumer_had_goes_to_others_at_once(
    broker: Broker, make_topic: MakeTopic, group: str, ledger: QueueLedger
) -> None:
    """Its connections close with it, so nobody waits for its leases to run out. Of several
    partitions, it would keep some to itself until its session ends."""
    topic = make_topic()
    configure_group(
        broker.bootstrap,
        group,
        share_auto_offset_reset="earliest",
        share_record_lock_duration_ms=str(LEASE_MS),
    )
    places = produce(broker.bootstrap, topic, ["job"] * 60, partitions=1)
    command = [sys.executable, "-c", HOLDER, broker.bootstrap, topic, group]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            lines = list(iter(process.stdout.readline, "holds them\n"))
        finally:
            process.kill()
    held = {tuple(map(int, line.split()[:2])) for line in lines}
    assert held
    member = ConfluentShare("heir", broker.bootstrap, topic, group, ledger)
    member.start()
    ledger.wait_until("everything", lambda: ledger.ended == places, LEASE_MS / 1000 - 10)
    member.stop()
    assert all(ledger.attempts[place] == [2] for place in held)
    assert all(ledger.attempts[place] == [1] for place in places - held)


def test_queues_live_through_kills_of_their_broker(
    make_broker: MakeBroker, java: Java, ledger: QueueLedger
) -> None:
    broker = make_broker().start()

    create_queue(broker.bootstrap)
    places = produce(broker.bootstrap, TOPIC, ["job"] * 300, PARTITIONS)
    members = members_of_both(java, broker.bootstrap, TOPIC, GROUP, ledger)
    for member in members:
        member.start()
    for _ in range(KILLS):
        before = len(ledger.ended)
        places |= produce(broker.bootstrap, TOPIC, ["job"] * 300, PARTITIONS)
        ledger.wait_until("progress", lambda before=before: len(ledger.ended) > before)  # type: ignore[misc]
        broker.kill()
        ledger.nobody_holds()
        broker.start()
    check_the_end(broker.bootstrap, places, members, ledger, KILLS)


def create_queue(bootstrap: str) -> None:
    create_topic(bootstrap, TOPIC, partitions=PARTITIONS)
    configure_group(bootstrap, GROUP, share_auto_offset_reset="earliest")


def check_the_end(
    bootstrap: str,
    places: set[tuple[int, int]],
    members: Sequence[ConfluentShare | JavaShare | WorkShare],
    ledger: QueueLedger,
    kills: int,
) -> None:
    all_done(bootstrap, GROUP, ledger)
    for member in members:
        member.stop()
    ledger.check(kills)
    assert set(ledger.attempts) == places
    # A record is done though nobody was told so only where the answer was lost with the broker.
    assert places - ledger.ended <= set(ledger.unsure)


# Three brokers


def test_queues_live_through_the_death_of_leaders(
    tmp_path: Path, java: Java, ledger: QueueLedger
) -> None:
    with Cluster(tmp_path) as cluster:
        cluster.create_topic(TOPIC, partitions=PARTITIONS)
        configure_group(cluster.nodes[1].bootstrap, GROUP, share_auto_offset_reset="earliest")
        places = produce(cluster.bootstrap, TOPIC, ["job"] * 300, PARTITIONS)
        members = members_of_both(java, cluster.bootstrap, TOPIC, GROUP, ledger)
        for member in members:
            member.start()
        ledger.wait_until("the first records", lambda: len(ledger.ended) > 0)
        for partition in range(2):
            before = len(ledger.ended)
            places |= produce(cluster.bootstrap, TOPIC, ["job"] * 300, PARTITIONS)
            ledger.wait_until("progress", lambda before=before: len(ledger.ended) > before)  # type: ignore[misc]
            leader = cluster.leader(TOPIC, partition)
            leader.kill()
            ledger.nobody_holds()
            cluster.leader(TOPIC, partition, among=[n.number for n in cluster.running()])
            places |= produce(cluster.bootstrap, TOPIC, ["job"] * 300, PARTITIONS)
            leader.start()
            cluster.wait_until_healthy(TOPIC, STATE)
        check_the_end(cluster.nodes[1].bootstrap, places, members, ledger, kills=2)


def test_clients_of_all_kinds_share_a_queue_whatever_dies(
    tmp_path: Path, java: Java, ledger: QueueLedger
) -> None:
    """A consumer that has leases, a leader and a broker that is none of the partition's die."""
    with Cluster(tmp_path) as cluster, ExitStack() as ending:
        cluster.create_topic(TOPIC, partitions=PARTITIONS)
        configure_group(cluster.nodes[1].bootstrap, GROUP, share_auto_offset_reset="earliest")
        places = produce(cluster.bootstrap, TOPIC, ["job"] * 300, PARTITIONS)
        held = killed_holder(cluster.bootstrap, ledger)
        shell = WorkShare("work", cluster.bootstrap, TOPIC, GROUP, ledger)
        ending.callback(shell.kill)
        members: list[ConfluentShare | JavaShare | WorkShare] = [
            ConfluentShare("confluent", cluster.bootstrap, TOPIC, GROUP, ledger),
            JavaShare(java, "java", cluster.bootstrap, TOPIC, GROUP, ledger),
            shell,
        ]
        for member in members:
            member.start()
        # However slowly one of them starts, it gets its share.
        while not ledger.by_member.keys() >= {"confluent", "java", "work"}:
            places |= produce(cluster.bootstrap, TOPIC, ["job"] * 60, PARTITIONS)
            ledger.wait_until("these", lambda so_far=set(places): ledger.ended >= so_far)  # type: ignore[misc]
        for partition, is_leader in enumerate((True, False)):
            before = len(ledger.ended)
            places |= produce(cluster.bootstrap, TOPIC, ["job"] * 300, PARTITIONS)
            ledger.wait_until("progress", lambda before=before: len(ledger.ended) > before)  # type: ignore[misc]
            leader = cluster.leader(TOPIC, partition)
            others = [node for node in cluster.running() if node is not leader]
            dying = leader if is_leader else others[0]
            dying.kill()
            ledger.nobody_holds()
            alive = [node.number for node in cluster.running()]
            cluster.leader(TOPIC, partition, among=alive)
            places |= produce(cluster.bootstrap, TOPIC, ["job"] * 300, PARTITIONS)
            dying.start()
            cluster.wait_until_healthy(TOPIC, STATE)
        check_the_end(cluster.nodes[1].bootstrap, places, members, ledger, kills=2)
        assert all(ledger.attempts[place][:1] == [1] for place in held)
        assert all(len(ledger.attempts[place]) > 1 for place in held), "others got them, too"


@pytest.mark.slow
def test_leases_of_a_member_that_is_out_of_time_end_on_other_brokers(
    tmp_path: Path, ledger: QueueLedger
) -> None:
    """It is stopped, so its connections stay open, and its leases would last for a minute."""
    cluster = Cluster(tmp_path)
    for node in cluster.nodes.values():
        for name in ("group.share.min.session.timeout.ms", "group.share.session.timeout.ms"):
            node.flags += ("--set", f"{name}={SESSION_MS}")
    with cluster:
        cluster.create_topic(TOPIC, partitions=1)
        leader = cluster.leader(TOPIC).bootstrap

        def is_elsewhere(group: str) -> bool:
            wait_until("a coordinator", lambda: coordinator_of(leader, group)[0] != ":", DONE_S)
            return coordinator_of(leader, group) != leader

        group = next(name for name in map("workers-{}".format, range(50)) if is_elsewhere(name))
        configure_group(
            leader,
            group,
            share_auto_offset_reset="earliest",
            share_record_lock_duration_ms=str(LEASE_MS),
        )
        places = produce(leader, TOPIC, ["job"] * 20, partitions=1)
        command = [sys.executable, "-c", HOLDER, leader, TOPIC, group]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                held = set(iter(process.stdout.readline, "holds them\n"))
                process.send_signal(signal.SIGSTOP)
                member = ConfluentShare("heir", leader, TOPIC, group, ledger)
                member.start()
                ledger.wait_until(
                    "everything", lambda: ledger.ended == places, LEASE_MS / 1000 - 20
                )
                member.stop()
            finally:
                process.kill()
        assert {ledger.attempts[tuple(map(int, line.split()[:2]))][-1] for line in held} == {2}  # type: ignore[index]


def killed_holder(bootstrap: str, ledger: QueueLedger) -> set[tuple[int, int]]:
    """What a consumer had that was killed."""
    command = [sys.executable, "-c", HOLDER, bootstrap, TOPIC, GROUP]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            lines = list(iter(process.stdout.readline, "holds them\n"))
        finally:
            process.kill()
    for line in lines:
        partition, offset, attempt = map(int, line.split())
        ledger.delivered("holder", partition, offset, attempt)
    return set(ledger.dies("holder"))


# Kafka's tools


def test_kafkas_tools_work_with_queues(
    broker: Broker, make_topic: MakeTopic, group: str, java: Java, ledger: QueueLedger
) -> None:
    topic = make_topic(partitions=PARTITIONS)
    configure_group(broker.bootstrap, group, share_auto_offset_reset="earliest")
    produce(broker.bootstrap, topic, [f"job {number}" for number in range(30)], PARTITIONS)
    server = ("--bootstrap-server", broker.bootstrap)
    limits = ("--max-messages", "30", "--timeout-ms", "60000")
    printed = java.tool(CONSOLE, *server, "--topic", topic, "--group", group, *limits)
    assert sorted(line for line in printed.splitlines() if line.startswith("job")) == sorted(
        f"job {number}" for number in range(30)
    )
    assert group in java.tool(SHARE_GROUPS, *server, "--list").split()
    listed = java.tool(GROUPS, *server, "--list", "--share")
    assert re.search(rf"{group}\s+Share\s+share", listed)

    def described(*words: str) -> list[list[str]]:
        text = java.tool(SHARE_GROUPS, *server, "--describe", "--group", group, *words)
        return [line.split() for line in text.splitlines() if line.startswith(group)]

    wait_until("the end of the queue", lambda: lags(broker.bootstrap, group) == [0, 0, 0], DONE_S)
    assert sorted(row[:4] for row in described()) == [
        [group, topic, str(number), "10"] for number in range(PARTITIONS)
    ]
    assert described("--state")[0][-2:] == ["Empty", "0"]

    def edited(*words: str) -> str:
        return java.tool(SHARE_GROUPS, *server, "--group", group, "--topic", topic, *words)

    assert topic in edited("--reset-offsets", "--to-earliest", "--execute")
    assert sorted(row[3] for row in described()) == ["0"] * PARTITIONS
    member = ConfluentShare("again", broker.bootstrap, topic, group, ledger)
    member.start()
    ledger.wait_until("everything again", lambda: len(ledger.ended) == 30)
    with_members = java.tool(SHARE_GROUPS, *server, "--describe", "--group", group, "--members")
    assert len([line for line in with_members.splitlines() if line.startswith(group)]) == 1
    member.stop()
    ledger.check()
    assert "Successful" in edited("--delete-offsets")
    deleted = java.tool(SHARE_GROUPS, *server, "--delete", "--group", group)
    assert "successful" in deleted
    assert group not in java.tool(SHARE_GROUPS, *server, "--list").split()


# What the how-to page says

SCRIPTS = {"kafka-share-groups.sh": SHARE_GROUPS}
PAGE_ADDRESS, PAGE_TOPIC = "127.0.0.1:9092", "jobs"


def test_the_java_code_and_the_tools_of_the_page_work(
    make_broker: MakeBroker, java: Java, tmp_path: Path, ledger: QueueLedger
) -> None:
    """Its Python and its own commands run in test_documents.py."""
    page = Document(ROOT / "docs" / "how-to" / "use-queues.md")
    broker = make_broker().start()
    create_topic(broker.bootstrap, PAGE_TOPIC, partitions=PARTITIONS)
    produce(broker.bootstrap, PAGE_TOPIC, ["resize 1", "resize 2", "resize 3"], PARTITIONS)
    for group in ("workers", "java-workers"):
        configure_group(broker.bootstrap, group, share_auto_offset_reset="earliest")
    (code,) = (block.text for block in page.blocks("java"))
    printed = run_java(tmp_path, code.replace(PAGE_ADDRESS, broker.bootstrap))
    assert sorted(printed.splitlines()) == ["resize 1", "resize 2", "resize 3"]
    worker = ConfluentShare("worker", broker.bootstrap, PAGE_TOPIC, "workers", ledger)
    worker.start()
    ledger.wait_until("the jobs", lambda: len(ledger.ended) == 3)
    worker.stop()
    for block in page.blocks("console"):
        for line in block.text.splitlines():
            script, *words = line.replace(PAGE_ADDRESS, broker.bootstrap).split()
            printed = java.tool(SCRIPTS[script], *words)
            assert PAGE_TOPIC in printed or "--members" in words, printed


def run_java(folder: Path, code: str) -> str:
    source = folder / "Worker.java"
    source.write_text(code)
    jars = install().split(":", 1)[1]
    return run_tool(["java", *JVM_FLAGS, "-cp", jars, str(source)]).decode()
