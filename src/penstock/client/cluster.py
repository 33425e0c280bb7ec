"""Looks at a cluster and changes who holds what, by Kafka's protocol alone.

Any broker answers; it passes on what only the controller can do.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from penstock.client.errors import ClientError
from penstock.client.kafka_connection import RETRY_PAUSE_S, KafkaConnection
from penstock.client.placement_plan import Move, Replicas, Site
from penstock.model.endpoint import Endpoint
from penstock.model.ids import PartitionIndex, TopicName, TopicPartition
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.protocol.kafka.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from penstock.protocol.kafka.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from penstock.protocol.kafka.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    QuorumPartition,
    QuorumTopic,
)
from penstock.protocol.kafka.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from penstock.protocol.kafka.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from penstock.protocol.kafka.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from penstock.protocol.kafka.messages.metadata import MetadataRequest, MetadataResponse
from penstock.protocol.kafka.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)

# A node with this broker setting gets no new replicas.
DRAINED_SETTING = "penstock.drained"
METADATA_TOPIC = "__cluster_metadata"
PREFERRED_ELECTION = 0
NO_NODE = -1
_BROKER_RESOURCE = 4
_SET, _DELETE = 0, 1
# A new controller is chosen within a second or two, and then the same question has an answer.
_PASSING = frozenset(
    {ErrorCode.NOT_CONTROLLER, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT}
)
_NOBODY_KNOWS = _PASSING | {ErrorCode.NOT_LEADER_OR_FOLLOWER}

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    node: int
    # None for a node that is only known from the replicas it should hold.
    endpoint: Endpoint | None
    rack: str | None
    is_up: bool
    is_drained: bool
    # In the group that holds the metadata: "voter", "learner", or None for neither.
    role: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionView:
    place: TopicPartition
    leader: int
    replicas: Replicas
    in_sync: Replicas

    @property
    def is_under_replicated(self) -> bool:
        return not set(self.replicas) <= set(self.in_sync)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moving:
    """A partition whose replicas are being changed."""

    place: TopicPartition
    replicas: Replicas
    adding: Replicas
    removing: Replicas


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    cluster_id: str
    controller: int
    nodes: tuple[NodeView, ...]
    partitions: tuple[PartitionView, ...]

    def node(self, number: int) -> NodeView:
        for node in self.nodes:
            if node.node == number:
                return node
        known = ", ".join(str(node.node) for node in self.nodes)
        raise ClientError(f"There is no node {number}; the cluster has {known}.")

    def placed(self) -> dict[TopicPartition, Replicas]:
        return {one.place: one.replicas for one in self.partitions}

    def sites(self) -> list[Site]:
        """The nodes that may take replicas."""
        return [
            Site(node.node, node.rack) for node in self.nodes if node.is_up and not node.is_drained
        ]

    def held_by(self, node: int) -> list[PartitionView]:
        return [one for one in self.partitions if node in one.replicas]


class _Passing(ClientError):
    """A refusal that is likely to be gone in a moment."""


class ClusterClient:
    """Questions and orders about the cluster as a whole."""

    def __init__(self, connection: KafkaConnection) -> None:
        self._connection = connection

    def view(self) -> ClusterView:
        brokers = self._brokers()
        metadata = self._metadata()
        quorum = self._quorum()
        roles = _roles(quorum)
        partitions = _partitions(metadata)
        held = {node for one in partitions for node in one.replicas}
        drained = self._drained([broker.node for broker in brokers])
        known = {broker.node: broker for broker in brokers}
        return ClusterView(
            cluster_id=metadata.cluster_id or "",
            # Not what Metadata says: a broker may name any that accepts orders there.
            controller=NO_NODE if quorum is None else quorum.leader_id,
            nodes=tuple(
                _node_view(number, known.get(number), drained, roles)
                for number in sorted(known.keys() | held | roles.keys())
            ),
            partitions=tuple(partitions),
        )

    def partitions(self) -> list[PartitionView]:
        return _partitions(self._metadata())

    def moving(self) -> list[Moving]:
        found = self._patiently(self._list_moving)
        return [
            Moving(
                place=TopicPartition(TopicName(topic.name), PartitionIndex(one.partition_index)),
                replicas=tuple(one.replicas),
                adding=tuple(one.adding_replicas),
                removing=tuple(one.removing_replicas),
            )
            for topic in found.topics
            for one in topic.partitions
        ]

    def reassign(self, moves: Sequence[Move]) -> None:
        """Order moves; they are carried out after this returns."""
        self._patiently(lambda: self._reassign(moves))

    def elect_preferred(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, str]:
        """Give partitions to their preferred leaders; returns why, where that could not be."""
        wanted = _by_topic(places)
        if not wanted:
            return {}
        return self._patiently(lambda: self._elect(wanted))

    def set_drained(self, node: int, is_drained: bool) -> None:
        self._patiently(lambda: self._set_drained(node, is_drained))

    def remove(self, node: int) -> None:
        """Forget a node for good."""
        self._patiently(lambda: self._remove(node))

    # Questions

    def _brokers(self) -> list[NodeView]:
        request = DescribeClusterRequest(endpoint_type=1, include_fenced_brokers=True)
        found = self._connection.ask(request, DescribeClusterResponse)
        check_answer("the description of the cluster", found.error_code, found.error_message)
        return [
            NodeView(
                node=one.broker_id,
                endpoint=Endpoint(one.host, one.port),
                rack=one.rack or None,
                is_up=not one.is_fenced,
                is_drained=False,
                role=None,
            )
            for one in found.brokers
        ]

    def _metadata(self) -> MetadataResponse:
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        return self._connection.ask(request, MetadataResponse)

    def _drained(self, nodes: Sequence[int]) -> set[int]:
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=_BROKER_RESOURCE,
                    resource_name=str(node),
                    configuration_keys=[DRAINED_SETTING],
                )
                for node in nodes
            ]
        )
        found = self._connection.ask(request, DescribeConfigsResponse)
        for result in found.results:
            what = f"the settings of node {result.resource_name}"
            check_answer(what, result.error_code, result.error_message)
        return {
            int(result.resource_name)
            for result in found.results
            if any(one.name == DRAINED_SETTING and one.value == "true" for one in result.configs)
        }

    def _quorum(self) -> PartitionData | None:
        """Who holds the metadata; None between two controllers, when nobody knows."""
        topic = QuorumTopic(
            topic_name=METADATA_TOPIC, partitions=[QuorumPartition(partition_index=0)]
        )
        found = self._connection.ask(DescribeQuorumRequest(topics=[topic]), DescribeQuorumResponse)
        answers = [one for described in found.topics for one in described.partitions]
        errors = [(found.error_code, found.error_message)]
        errors += [(one.error_code, one.error_message) for one in answers]
        for code, message in errors:
            if code in _NOBODY_KNOWS:
                return None
            check_answer("the roles of the nodes", code, message)
        return answers[0] if answers else None

    def _list_moving(self) -> ListPartitionReassignmentsResponse:
        request = ListPartitionReassignmentsRequest(timeout_ms=self._timeout_ms(), topics=None)
        found = self._connection.ask(request, ListPartitionReassignmentsResponse)
        check_answer("the list of moves", found.error_code, found.error_message)
        return found

    # Orders

    def _reassign(self, moves: Sequence[Move]) -> None:
        replicas = {move.place: list(move.replicas) for move in moves}
        topics = [
            ReassignableTopic(
                name=topic,
                partitions=[
                    ReassignablePartition(
                        partition_index=partition,
                        replicas=replicas[TopicPartition(topic, PartitionIndex(partition))],
                    )
                    for partition in partitions
                ],
            )
            for topic, partitions in _by_topic(replicas).items()
        ]
        request = AlterPartitionReassignmentsRequest(timeout_ms=self._timeout_ms(), topics=topics)
        found = self._connection.ask(request, AlterPartitionReassignmentsResponse)
        check_answer("the moves", found.error_code, found.error_message)
        for answered in found.responses:
            for one in answered.partitions:
                what = f"the move of {answered.name}-{one.partition_index}"
                check_answer(what, one.error_code, one.error_message)

    def _elect(
        self, wanted: Mapping[TopicName, Sequence[PartitionIndex]]
    ) -> dict[TopicPartition, str]:
        request = ElectLeadersRequest(
            election_type=PREFERRED_ELECTION,
            topic_partitions=[
                TopicPartitions(topic=topic, partitions=list(partitions))
                for topic, partitions in wanted.items()
            ],
            timeout_ms=self._timeout_ms(),
        )
        found = self._connection.ask(request, ElectLeadersResponse)
        check_answer("the election of leaders", found.error_code, None)
        return {
            TopicPartition(TopicName(result.topic), PartitionIndex(one.partition_id)): _reason(
                one.error_code, one.error_message
            )
            for result in found.replica_election_results
            for one in result.partition_result
            if one.error_code not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)
        }

    def _set_drained(self, node: int, is_drained: bool) -> None:
        change = AlterableConfig(
            name=DRAINED_SETTING,
            config_operation=_SET if is_drained else _DELETE,
            value="true" if is_drained else None,
        )
        resource = AlterConfigsResource(
            resource_type=_BROKER_RESOURCE, resource_name=str(node), configs=[change]
        )
        request = IncrementalAlterConfigsRequest(resources=[resource])
        found = self._connection.ask(request, IncrementalAlterConfigsResponse)
        for one in found.responses:
            check_answer(f"the settings of node {node}", one.error_code, one.error_message)

    def _remove(self, node: int) -> None:
        request = UnregisterBrokerRequest(broker_id=node)
        found = self._connection.ask(request, UnregisterBrokerResponse)
        check_answer(f"the removal of node {node}", found.error_code, found.error_message)

    def _patiently(self, ask: Callable[[], T]) -> T:
        """Ask again while the cluster is between two controllers, within the time limit."""
        deadline = time.monotonic() + self._connection.timeout_s
        while True:
            try:
                return ask()
            except _Passing:
                if time.monotonic() > deadline:
                    raise
            time.sleep(RETRY_PAUSE_S)

    def _timeout_ms(self) -> int:
        return int(self._connection.timeout_s * 1000)


def _node_view(
    number: int, broker: NodeView | None, drained: set[int], roles: Mapping[int, str]
) -> NodeView:
    return NodeView(
        node=number,
        endpoint=broker.endpoint if broker else None,
        rack=broker.rack if broker else None,
        is_up=broker is not None and broker.is_up,
        is_drained=number in drained,
        role=roles.get(number),
    )


def _roles(quorum: PartitionData | None) -> dict[int, str]:
    if quorum is None:
        return {}
    roles = {one.replica_id: "learner" for one in quorum.observers}
    return roles | {one.replica_id: "voter" for one in quorum.current_voters}


def _partitions(metadata: MetadataResponse) -> list[PartitionView]:
    views = [
        PartitionView(
            place=TopicPartition(TopicName(topic.name or ""), PartitionIndex(one.partition_index)),
            leader=one.leader_id,
            replicas=tuple(one.replica_nodes),
            in_sync=tuple(one.isr_nodes),
        )
        for topic in metadata.topics
        for one in topic.partitions
    ]
    return sorted(views, key=lambda view: view.place)


def _by_topic(places: Iterable[TopicPartition]) -> dict[TopicName, list[PartitionIndex]]:
    topics: dict[TopicName, list[PartitionIndex]] = {}
    for place in sorted(places):
        topics.setdefault(place.topic, []).append(place.partition)
    return topics


def check_answer(what: str, code: int, message: str | None) -> None:
    if code != ErrorCode.NONE:
        kind = _Passing if code in _PASSING else ClientError
        raise kind(f"The broker refused {what}: {_reason(code, message)}.")


def _reason(code: int, message: str | None) -> str:
    """The broker's own words, or the name of the code, to stand at the end of a sentence."""
    if message:
        return " ".join(message.split()).rstrip(".")
    known = code in ErrorCode.__members__.values()
    return ErrorCode(code).name.lower().replace("_", " ") if known else f"error {code}"
