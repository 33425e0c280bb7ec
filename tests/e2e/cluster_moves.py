"""What an operator does to a running cluster: moves replicas, drains nodes, watches it settle."""

import json
from collections.abc import Sequence
from typing import Any

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.protocol.kafka.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)
from tests.e2e.cluster_nodes import Cluster
from tests.e2e.processes import run
from tests.waiting import wait_until

# A cluster between two controllers says so, and clients ask again.
PASSING = frozenset(
    {ErrorCode.NOT_CONTROLLER, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT}
)
MOVE_TIMEOUT_S = 60.0
COMMAND_TIMEOUT_S = 110.0
# Each of three brokers is given a third of it, of the usual five seconds too little when all of
# them and a load share two cores.
ANSWER_TIMEOUT_S = "45"


def move_replicas(cluster: Cluster, topic: str, partition: int, replicas: Sequence[int]) -> None:
    """Ask any node for it, and wait until the cluster says that it is done."""
    start_move(cluster, topic, partition, replicas)
    await_move(cluster, topic, partition, replicas)


def start_move(cluster: Cluster, topic: str, partition: int, replicas: Sequence[int]) -> None:
    moved = ReassignablePartition(partition_index=partition, replicas=list(replicas))
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=30_000, topics=[ReassignableTopic(name=topic, partitions=[moved])]
    )

    def ordered() -> bool:
        node = cluster.running()[-1]
        answer = node.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, request, timeout_s=60)
        codes = [p.error_code for t in answer.responses for p in t.partitions]
        codes.append(answer.error_code)
        assert all(code in PASSING or code == ErrorCode.NONE for code in codes), answer
        return not any(codes)

    wait_until(f"the order to move {topic}-{partition}", ordered, MOVE_TIMEOUT_S)


def await_move(cluster: Cluster, topic: str, partition: int, replicas: Sequence[int]) -> None:
    wait_until(
        f"the move of {topic}-{partition} to {list(replicas)}",
        lambda: not is_moving(cluster) and is_placed(cluster, topic, partition, replicas),
        MOVE_TIMEOUT_S,
    )


def is_moving(cluster: Cluster) -> bool:
    """As long as nobody denies it."""
    request = ListPartitionReassignmentsRequest(timeout_ms=10_000, topics=None)
    answer = cluster.running()[-1].ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, request)
    if answer.error_code in PASSING:
        return True
    assert answer.error_code == ErrorCode.NONE, answer
    return bool(answer.topics)


def is_placed(cluster: Cluster, topic: str, partition: int, replicas: Sequence[int]) -> bool:
    views = [node.partitions(topic).get((topic, partition)) for node in cluster.running()]
    wanted = frozenset(replicas)
    return all(view is not None and view.replicas == wanted == view.in_sync for view in views)


def operate(cluster: Cluster, *arguments: str) -> str:
    """`penstock cluster ...` against any node that runs; returns what it printed."""
    bootstrap = ",".join(node.bootstrap for node in cluster.running())
    options = ("--bootstrap", bootstrap, "--timeout", ANSWER_TIMEOUT_S)
    outcome = run("cluster", *arguments, *options, timeout_s=COMMAND_TIMEOUT_S)
    assert outcome.returncode == 0, f"{arguments}: {outcome.stdout}{outcome.stderr}"
    return outcome.stdout


def status(cluster: Cluster) -> Any:
    return json.loads(operate(cluster, "status", "--json"))
