"""A cluster in memory that answers what `penstock cluster` asks, without a network."""

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from penstock.model.ids import PartitionIndex, TopicName, TopicPartition
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from penstock.protocol.kafka.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from penstock.protocol.kafka.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from penstock.protocol.kafka.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    ReplicaState,
    TopicData,
)
from penstock.protocol.kafka.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from penstock.protocol.kafka.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from penstock.protocol.kafka.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from penstock.protocol.kafka.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from penstock.protocol.kafka.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)

DRAINED = "penstock.drained"


def at(name: str, partition: int) -> TopicPartition:
    return TopicPartition(TopicName(name), PartitionIndex(partition))


class FakeCluster:
    """Nodes 1 to `nodes`; a move takes `steps_per_move` looks at the list of moves."""

    timeout_s = 0.5

    def __init__(self, nodes: int = 3, *, steps_per_move: int = 2) -> None:
        self.nodes = set(range(1, nodes + 1))
        self.racks: dict[int, str] = {}
        self.down: set[int] = set()
        self.drained: set[int] = set()
        self.controller = 1
        self.voters = {1, 2, 3} & self.nodes
        self.leaders: dict[TopicPartition, int] = {}
        self.replicas: dict[TopicPartition, list[int]] = {}
        self.moving: dict[TopicPartition, tuple[list[int], int]] = {}
        self.steps_per_move = steps_per_move
        # This many times the list of moves is that of a broker which has not heard of them.
        self.blind_looks = 0
        self.orders: list[list[tuple[TopicPartition, list[int]]]] = []
        # Error codes to be given, in this order, before the next orders succeed.
        self.failures: list[ErrorCode] = []
        self.asked: list[object] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    def add(self, topic: str, partition: int, *replicas: int, leader: int | None = None) -> None:
        self.replicas[at(topic, partition)] = list(replicas)
        self.leaders[at(topic, partition)] = replicas[0] if leader is None else leader

    def ask(self, request: object, answer: type) -> Any:
        self.asked.append(request)
        found = self._handlers()[type(request)](request)
        assert isinstance(found, answer)
        return found

    def _handlers(self) -> dict[type, Callable[[Any], object]]:
        return {
            DescribeClusterRequest: self._describe,
            MetadataRequest: self._metadata,
            DescribeConfigsRequest: self._settings,
            DescribeQuorumRequest: self._quorum,
            ListPartitionReassignmentsRequest: self._list_moving,
            AlterPartitionReassignmentsRequest: self._reassign,
            ElectLeadersRequest: self._elect,
            IncrementalAlterConfigsRequest: self._alter,
            UnregisterBrokerRequest: self._unregister,
        }

    def _describe(self, request: DescribeClusterRequest) -> object:
        assert request.include_fenced_brokers
        return DescribeClusterResponse(
            cluster_id="fake",
            controller_id=self.controller,
            brokers=[
                DescribeClusterBroker(
                    broker_id=node,
                    host="127.0.0.1",
                    port=9000 + node,
                    rack=self.racks.get(node),
                    is_fenced=node in self.down,
                )
                for node in sorted(self.nodes)
            ],
        )

    def _metadata(self, request: MetadataRequest) -> object:
        assert request.topics is None
        assert not request.allow_auto_topic_creation
        names = sorted({place.topic for place in self.replicas})
        return MetadataResponse(
            cluster_id="fake",
            controller_id=self.controller,
            brokers=[
                MetadataResponseBroker(node_id=node, host="127.0.0.1", port=9000 + node)
                for node in sorted(self.nodes - self.down)
            ],
            topics=[
                MetadataResponseTopic(
                    name=name,
                    partitions=[
                        MetadataResponsePartition(
                            partition_index=place.partition,
                            leader_id=self.leaders[place],
                            replica_nodes=self.replicas[place],
                            isr_nodes=[
                                node for node in self.replicas[place] if node not in self.down
                            ],
                        )
                        for place in self.replicas
                        if place.topic == name
                    ],
                )
                for name in names
            ],
        )

    def _settings(self, request: DescribeConfigsRequest) -> object:
        return DescribeConfigsResponse(
            results=[
                DescribeConfigsResult(
                    resource_name=one.resource_name,
                    configs=[
                        DescribeConfigsResourceResult(
                            name=DRAINED,
                            value=str(int(one.resource_name) in self.drained).lower(),
                        )
                    ],
                )
                for one in request.resources
            ]
        )

    def _quorum(self, request: DescribeQuorumRequest) -> object:
        data = PartitionData(
            leader_id=self.controller,
            current_voters=[ReplicaState(replica_id=node) for node in sorted(self.voters)],
            observers=[ReplicaState(replica_id=node) for node in sorted(self.nodes - self.voters)],
        )
        topic = request.topics[0].topic_name
        return DescribeQuorumResponse(topics=[TopicData(topic_name=topic, partitions=[data])])

    def _list_moving(self, request: ListPartitionReassignmentsRequest) -> object:
        assert request.topics is None
        if self.blind_looks > 0:
            self.blind_looks -= 1
            return ListPartitionReassignmentsResponse(topics=[])
        for place, (replicas, steps) in list(self.moving.items()):
            if steps > 0:
                self.moving[place] = (replicas, steps - 1)
                continue
            del self.moving[place]
            self.replicas[place] = replicas
            if self.leaders[place] not in replicas:
                self.leaders[place] = replicas[0]
        return ListPartitionReassignmentsResponse(
            topics=[
                OngoingTopicReassignment(
                    name=place.topic,
                    partitions=[
                        OngoingPartitionReassignment(
                            partition_index=place.partition,
                            replicas=replicas,
                            adding_replicas=[
                                node for node in replicas if node not in self.replicas[place]
                            ],
                            removing_replicas=[
                                node for node in self.replicas[place] if node not in replicas
                            ],
                        )
                    ],
                )
                for place, (replicas, _) in self.moving.items()
            ]
        )

    def _reassign(self, request: AlterPartitionReassignmentsRequest) -> object:
        code = self.failures.pop(0) if self.failures else ErrorCode.NONE
        responses = []
        order = []
        for topic in request.topics:
            for one in topic.partitions:
                assert one.replicas is not None
                order.append((at(topic.name, one.partition_index), list(one.replicas)))
            responses.append(
                ReassignableTopicResponse(
                    name=topic.name,
                    partitions=[
                        ReassignablePartitionResponse(
                            partition_index=one.partition_index, error_code=code
                        )
                        for one in topic.partitions
                    ],
                )
            )
        if code == ErrorCode.NONE:
            self.orders.append(order)
            for place, replicas in order:
                is_reorder = set(replicas) == set(self.replicas[place])
                self.moving[place] = (replicas, 0 if is_reorder else self.steps_per_move)
        return AlterPartitionReassignmentsResponse(responses=responses)

    def _elect(self, request: ElectLeadersRequest) -> object:
        assert request.topic_partitions is not None
        results = []
        for topic in request.topic_partitions:
            answers = []
            for partition in topic.partitions:
                place = at(topic.topic, partition)
                wanted = self.replicas[place][0]
                code = ErrorCode.NONE
                if self.leaders[place] == wanted:
                    code = ErrorCode.ELECTION_NOT_NEEDED
                elif wanted in self.down:
                    code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
                else:
                    self.leaders[place] = wanted
                answers.append(PartitionResult(partition_id=partition, error_code=code))
            results.append(ReplicaElectionResult(topic=topic.topic, partition_result=answers))
        return ElectLeadersResponse(replica_election_results=results)

    def _alter(self, request: IncrementalAlterConfigsRequest) -> object:
        (resource,) = request.resources
        (change,) = resource.configs
        assert change.name == DRAINED
        node = int(resource.resource_name)
        if change.config_operation == 0:
            self.drained.add(node)
        else:
            self.drained.discard(node)
        return IncrementalAlterConfigsResponse(
            responses=[AlterConfigsResourceResponse(resource_name=resource.resource_name)]
        )

    def _unregister(self, request: UnregisterBrokerRequest) -> object:
        self.nodes.discard(request.broker_id)
        return UnregisterBrokerResponse()
