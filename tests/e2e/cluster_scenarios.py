"""What happens to a cluster of three under load: the short tests and the soaks run the same."""

import json
import random
import time
from base64 import urlsafe_b64decode
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from uuid import UUID

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.messages.describe_quorum import (
    DescribeQuorumRequest,
    QuorumPartition,
    QuorumTopic,
)
from tests.e2e.cluster_disks import Disk, ImageDisk
from tests.e2e.cluster_history import STEADY, History, Pace, Summary, under_load
from tests.e2e.cluster_logs import compare_logs
from tests.e2e.cluster_moves import await_move, move_replicas, operate, start_move, status
from tests.e2e.cluster_network import Network
from tests.e2e.cluster_nodes import Cluster, ClusterNode
from tests.e2e.cluster_probe import Probe
from tests.unit.storage.rot import lose_last_votes
from tests.waiting import wait_until

TOPIC = "history"
OFFSETS = "__consumer_offsets"
METADATA_TOPIC = "__cluster_metadata"
QUORUM_VERSION = 2
PEER_SECRET = {"PENSTOCK_PEER_SECRET": "known to the members only"}
# Ten ticks of a tenth of a second, and up to as much again by chance.
ELECTION_TIMEOUT_S = 2.0
PAUSE_S = 2 * ELECTION_TIMEOUT_S
# While a node is away the others go on after an election and a client's own retries. That takes
# seconds, of which the history tells; the fault lasts until it happened, so the bound is for hangs.
GOES_ON_WITHIN_S = 40.0
SETTLED_WITHIN_S = 60.0
DOWN_S = (0.0, 1.5)
NODES = 3
PARTITIONS = 3
# How often a move is disturbed by the death of a node.
KILL_SHARE = 0.3

Fault = Callable[[Cluster, History, random.Random], None]


@contextmanager
def three_nodes(folder: Path, network: Network | None = None) -> Iterator[Cluster]:
    secret = PEER_SECRET if network else None
    with Cluster(folder, network=network, environment=secret) as cluster:
        cluster.create_topic(TOPIC, partitions=PARTITIONS)
        yield cluster


def run_rounds(
    cluster: Cluster,
    fault: Fault,
    *,
    rounds: int,
    every_s: float,
    seed: int,
    pace: Pace = STEADY,
) -> str:
    """The same fault again and again under load, then health, the history and the disks."""
    dice = random.Random(seed)
    with under_load(cluster.bootstrap, TOPIC, pace=pace) as history:
        for _ in range(rounds):
            due = time.monotonic() + every_s
            fault(cluster, history, dice)
            time.sleep(max(0.0, due - time.monotonic()))
        return judge(cluster, history)


def judge(cluster: Cluster, history: History) -> str:
    """The verdict of a run whose faults are over; ends the cluster."""
    settled_s = cluster.wait_until_healthy(TOPIC, OFFSETS, timeout_s=SETTLED_WITHIN_S)
    # Of the nodes that it began with, none may be left.
    history.bootstrap = cluster.bootstrap
    summary: Summary = history.finish()
    cluster.wait_until_healthy(TOPIC, OFFSETS)
    directories = [node.data_dir for node in cluster.running()]
    cluster.freeze_and_kill()
    compared = compare_logs(directories)
    assert compared > 0
    return f"{summary}; settled after {settled_s:.1f} s; {compared:,} entries equal on the disks"


def kill_one(cluster: Cluster, history: History, dice: random.Random) -> None:
    """`kill -9` of a node by chance, which comes back a little later."""
    node = dice.choice(cluster.running())
    node.kill()
    time.sleep(dice.uniform(*DOWN_S))
    node.start()


def restart_each(cluster: Cluster, history: History, dice: random.Random) -> None:
    """A rolling restart, as an upgrade does it: one after the other, each waiting for health."""
    for node in list(cluster.nodes.values()):
        assert node.terminate() == 0, node.stderr()[-2000:]
        node.start()
        cluster.wait_until_healthy(TOPIC, OFFSETS, timeout_s=SETTLED_WITHIN_S)


def pause_leader(cluster: Cluster, history: History, dice: random.Random) -> None:
    """SIGSTOP for longer than an election takes: when it wakes, it still believes that it leads."""
    leader = cluster.leader(TOPIC)
    leader.pause()
    try:
        time.sleep(ELECTION_TIMEOUT_S)
        history.wait_for_progress(timeout_s=GOES_ON_WITHIN_S)
        time.sleep(PAUSE_S - ELECTION_TIMEOUT_S)
    finally:
        leader.resume()
    history.wait_for_progress(timeout_s=GOES_ON_WITHIN_S)


def cut_off_leader(network: Network) -> Fault:
    """The leader loses both others, but no client: it must acknowledge nothing."""

    def fault(cluster: Cluster, history: History, dice: random.Random) -> None:
        leader = cluster.leader(TOPIC)
        others = [number for number in cluster.nodes if number != leader.number]
        probe = Probe(leader.bootstrap, TOPIC)
        network.cut_off(leader.number, others)
        try:
            probe.send(5)
            await_other_leader(cluster, leader, others)
            history.wait_for_progress(timeout_s=GOES_ON_WITHIN_S)
            probe.send(5)
            probe.await_answers()
        finally:
            network.heal()
        await_agreement(cluster)
        answers = probe.close()
        assert 0 not in answers, f"the cut-off leader acknowledged something: {answers}"
        history.wait_for_progress(timeout_s=GOES_ON_WITHIN_S)

    return fault


def cut_one_way(network: Network) -> Fault:
    """The leader's packets to the others are lost, or theirs to it, or those between two nodes."""

    def fault(cluster: Cluster, history: History, dice: random.Random) -> None:
        leader = cluster.leader(TOPIC).number
        others = [number for number in cluster.nodes if number != leader]
        one, another = dice.sample(others, 2)
        pairs = dice.choice(
            [
                [(leader, one), (leader, another)],
                [(one, leader), (another, leader)],
                [(leader, one)],
                [(one, leader)],
                [(one, another)],
            ]
        )
        for sender, receiver in pairs:
            network.cut(sender, receiver)
        try:
            time.sleep(ELECTION_TIMEOUT_S)
            history.wait_for_progress(timeout_s=GOES_ON_WITHIN_S)
            time.sleep(ELECTION_TIMEOUT_S)
        finally:
            network.heal()
        history.wait_for_progress(timeout_s=GOES_ON_WITHIN_S)

    return fault


def fill_disk(node: ClusterNode, disk: Disk) -> Fault:
    """One node can't write any more: the others go on, and it comes back when there is room."""

    def fault(cluster: Cluster, history: History, dice: random.Random) -> None:
        disk.fill()
        try:
            history.wait_for_progress(timeout_s=GOES_ON_WITHIN_S)
            time.sleep(PAUSE_S)
            history.wait_for_progress(timeout_s=GOES_ON_WITHIN_S)
            assert node.is_running, "a full disk must not end the node"
        finally:
            disk.free()
        cluster.wait_until_healthy(TOPIC, timeout_s=SETTLED_WITHIN_S)

    return fault


@contextmanager
def three_nodes_on_disks(folder: Path) -> Iterator[tuple[Cluster, Mapping[int, ImageDisk]]]:
    cluster = Cluster(folder)
    with ExitStack() as stack:
        disks = {
            number: stack.enter_context(ImageDisk(node.data_dir))
            for number, node in cluster.nodes.items()
        }
        with cluster:
            cluster.create_topic(TOPIC, partitions=PARTITIONS)
            yield cluster, disks


def freeze_leader(disks: Mapping[int, ImageDisk], moved_s: list[float]) -> Fault:
    """Its disk hangs without an error: others lead, and it follows once the disk answers.

    `moved_s` is told how long it took until every writer went on in every partition.
    """

    def fault(cluster: Cluster, history: History, dice: random.Random) -> None:
        leader = cluster.leader(TOPIC)
        others = [number for number in cluster.nodes if number != leader.number]
        with disks[leader.number].frozen():
            moved_s.append(history.wait_for_progress(timeout_s=GOES_ON_WITHIN_S))
            assert cluster.leader(TOPIC, among=others).number in others
            time.sleep(PAUSE_S)
            history.wait_for_progress(timeout_s=GOES_ON_WITHIN_S)
            assert leader.is_running, "a disk that hangs must not end the node"
        cluster.wait_until_healthy(TOPIC, OFFSETS, timeout_s=SETTLED_WITHIN_S)

    return fault


def cut_power(disks: Mapping[int, ImageDisk]) -> Fault:
    """All machines lose their power under load: what was acknowledged was synced, and nothing else
    has to come back.

    The nodes stop first: while ext4 shuts down, a sync that is under way can return without an
    error though its journal entry was dropped, which no power cut does.
    """

    def fault(cluster: Cluster, history: History, dice: random.Random) -> None:
        history.wait_for_progress(timeout_s=GOES_ON_WITHIN_S)
        cluster.freeze()
        for node in cluster.running():
            wait_until(f"node {node.number} stands still", node.stands_still, SETTLED_WITHIN_S)
        for number in dice.sample(sorted(disks), len(disks)):
            disks[number].lose_power()
        cluster.freeze_and_kill()
        for disk in disks.values():
            disk.get_power()
        cluster.start()
        history.wait_for_progress(timeout_s=GOES_ON_WITHIN_S)

    return fault


def lose_disk(cluster: Cluster, history: History, dice: random.Random) -> None:
    """A node comes back with an empty disk and is filled again without an operator."""
    node = dice.choice(cluster.running())
    node.kill()
    node.wipe()
    history.wait_for_progress(timeout_s=GOES_ON_WITHIN_S)
    node.start()
    cluster.wait_until_healthy(TOPIC, OFFSETS, timeout_s=SETTLED_WITHIN_S)


def lose_votes(cluster: Cluster, history: History, dice: random.Random) -> None:
    """Both copies of what a node promised last are bad: it comes back as somebody else, who has
    the data already and takes the place of the old member in every group."""
    node = dice.choice(cluster.running())
    before = directory_of(node)
    node.kill()
    lose_last_votes(node.data_dir)
    history.wait_for_progress(timeout_s=GOES_ON_WITHIN_S)
    node.start()
    after = directory_of(node)
    assert after != before
    assert "comes back under a new identity" in node.stderr()
    cluster.wait_until_healthy(TOPIC, OFFSETS, timeout_s=SETTLED_WITHIN_S)
    wait_until(
        "the metadata has the new member as a voter and the old one not at all",
        lambda: after in metadata_voters(cluster) and before not in metadata_voters(cluster),
        SETTLED_WITHIN_S,
    )
    assert len(metadata_voters(cluster)) == len(cluster.nodes)


def directory_of(node: ClusterNode) -> UUID:
    """The id of its data directory, as Kafka shows it."""
    text = (node.data_dir / "penstock.json").read_text()
    directory = json.loads(text[: len(text) // 2])["directory_id"]
    return UUID(bytes=urlsafe_b64decode(directory + "=="))


def metadata_voters(cluster: Cluster) -> list[UUID]:
    wanted = QuorumTopic(topic_name=METADATA_TOPIC, partitions=[QuorumPartition(partition_index=0)])
    answer = cluster.running()[0].ask(
        ApiKey.DESCRIBE_QUORUM, QUORUM_VERSION, DescribeQuorumRequest(topics=[wanted])
    )
    return [
        voter.replica_directory_id
        for topic in answer.topics
        for partition in topic.partitions
        for voter in partition.current_voters
    ]


def replace_node(cluster: Cluster, history: History, dice: random.Random) -> None:
    """A further node joins and gets a replica; then another is drained, removed and ends."""
    leaver = dice.choice(list(cluster.nodes.values()))
    newcomer = cluster.join(max(cluster.nodes) + 1)
    history.wait_for_progress(timeout_s=GOES_ON_WITHIN_S)
    staying = [number for number in cluster.nodes if number != leaver.number]
    move_replicas(cluster, TOPIC, 0, staying)
    history.wait_for_progress(timeout_s=GOES_ON_WITHIN_S)
    operate(cluster, "drain", str(leaver.number))
    # The command asked one node, and the others hear of it a little later.
    wait_until(
        f"the newcomer hears that {leaver.number} is empty",
        lambda: all(
            leaver.number not in view.replicas
            for view in newcomer.partitions(TOPIC, OFFSETS).values()
        ),
        SETTLED_WITHIN_S,
    )
    assert leaver.terminate() == 0
    del cluster.nodes[leaver.number]
    operate(cluster, "remove", str(leaver.number))
    wait_until(
        f"nobody knows {leaver.number} any more",
        lambda: leaver.number not in [node["node"] for node in status(cluster)["nodes"]],
        SETTLED_WITHIN_S,
    )
    cluster.wait_until_healthy(TOPIC, OFFSETS, timeout_s=SETTLED_WITHIN_S)


def move_around(cluster: Cluster, history: History, dice: random.Random) -> None:
    """Replicas go to nodes that never had them, and come back to nodes that once did.

    Every now and then a node dies in the middle of it.
    """
    if len(cluster.nodes) == NODES:
        cluster.join(max(cluster.nodes) + 1)
    partition = dice.randrange(PARTITIONS)
    replicas = dice.sample(sorted(cluster.nodes), NODES)
    if dice.random() < KILL_SHARE:
        start_move(cluster, TOPIC, partition, replicas)
        kill_one(cluster, history, dice)
        await_move(cluster, TOPIC, partition, replicas)
    else:
        move_replicas(cluster, TOPIC, partition, replicas)
    history.wait_for_progress(timeout_s=GOES_ON_WITHIN_S)


def anything(network: Network) -> Fault:
    """Any of the faults that leave a cluster of three a cluster of three."""
    faults = [kill_one, pause_leader, lose_disk, cut_off_leader(network), cut_one_way(network)]

    def fault(cluster: Cluster, history: History, dice: random.Random) -> None:
        dice.choice(faults)(cluster, history, dice)

    return fault


def await_other_leader(cluster: Cluster, old: ClusterNode, others: list[int]) -> None:
    """Until the majority has a leader of its own; how long it takes is in the history."""
    wait_until(
        f"another leader than {old.number}",
        lambda: cluster.leader(TOPIC, among=others).number in others,
        GOES_ON_WITHIN_S,
    )


def await_agreement(cluster: Cluster) -> None:
    cluster.wait_until_healthy(TOPIC, timeout_s=SETTLED_WITHIN_S)
