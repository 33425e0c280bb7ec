"""Every API that we can speak, with its request and its response."""

from typing import NamedTuple

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from penstock.protocol.kafka.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from penstock.protocol.kafka.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
)
from penstock.protocol.kafka.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)
from penstock.protocol.kafka.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.protocol.kafka.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from penstock.protocol.kafka.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from penstock.protocol.kafka.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from penstock.protocol.kafka.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from penstock.protocol.kafka.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
)
from penstock.protocol.kafka.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from penstock.protocol.kafka.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from penstock.protocol.kafka.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from penstock.protocol.kafka.messages.delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsResponse,
)
from penstock.protocol.kafka.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from penstock.protocol.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from penstock.protocol.kafka.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from penstock.protocol.kafka.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from penstock.protocol.kafka.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
)
from penstock.protocol.kafka.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from penstock.protocol.kafka.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from penstock.protocol.kafka.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from penstock.protocol.kafka.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
)
from penstock.protocol.kafka.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
)
from penstock.protocol.kafka.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from penstock.protocol.kafka.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from penstock.protocol.kafka.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from penstock.protocol.kafka.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from penstock.protocol.kafka.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from penstock.protocol.kafka.messages.fetch import FetchRequest, FetchResponse
from penstock.protocol.kafka.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from penstock.protocol.kafka.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from penstock.protocol.kafka.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.protocol.kafka.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from penstock.protocol.kafka.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from penstock.protocol.kafka.messages.join_group import JoinGroupRequest, JoinGroupResponse
from penstock.protocol.kafka.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from penstock.protocol.kafka.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from penstock.protocol.kafka.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from penstock.protocol.kafka.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from penstock.protocol.kafka.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from penstock.protocol.kafka.messages.metadata import MetadataRequest, MetadataResponse
from penstock.protocol.kafka.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from penstock.protocol.kafka.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from penstock.protocol.kafka.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from penstock.protocol.kafka.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from penstock.protocol.kafka.messages.produce import ProduceRequest, ProduceResponse
from penstock.protocol.kafka.messages.push_telemetry import (
    PushTelemetryRequest,
    PushTelemetryResponse,
)
from penstock.protocol.kafka.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from penstock.protocol.kafka.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from penstock.protocol.kafka.messages.sasl_handshake import (
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from penstock.protocol.kafka.messages.share_acknowledge import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)
from penstock.protocol.kafka.messages.share_fetch import ShareFetchRequest, ShareFetchResponse
from penstock.protocol.kafka.messages.share_group_describe import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from penstock.protocol.kafka.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from penstock.protocol.kafka.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from penstock.protocol.kafka.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)


class Exchange(NamedTuple):
    request: type
    response: type


EXCHANGES: dict[ApiKey, Exchange] = {
    ApiKey.PRODUCE: Exchange(ProduceRequest, ProduceResponse),
    ApiKey.FETCH: Exchange(FetchRequest, FetchResponse),
    ApiKey.LIST_OFFSETS: Exchange(ListOffsetsRequest, ListOffsetsResponse),
    ApiKey.METADATA: Exchange(MetadataRequest, MetadataResponse),
    ApiKey.OFFSET_COMMIT: Exchange(OffsetCommitRequest, OffsetCommitResponse),
    ApiKey.OFFSET_FETCH: Exchange(OffsetFetchRequest, OffsetFetchResponse),
    ApiKey.FIND_COORDINATOR: Exchange(FindCoordinatorRequest, FindCoordinatorResponse),
    ApiKey.JOIN_GROUP: Exchange(JoinGroupRequest, JoinGroupResponse),
    ApiKey.HEARTBEAT: Exchange(HeartbeatRequest, HeartbeatResponse),
    ApiKey.LEAVE_GROUP: Exchange(LeaveGroupRequest, LeaveGroupResponse),
    ApiKey.SYNC_GROUP: Exchange(SyncGroupRequest, SyncGroupResponse),
    ApiKey.DESCRIBE_GROUPS: Exchange(DescribeGroupsRequest, DescribeGroupsResponse),
    ApiKey.LIST_GROUPS: Exchange(ListGroupsRequest, ListGroupsResponse),
    ApiKey.SASL_HANDSHAKE: Exchange(SaslHandshakeRequest, SaslHandshakeResponse),
    ApiKey.API_VERSIONS: Exchange(ApiVersionsRequest, ApiVersionsResponse),
    ApiKey.CREATE_TOPICS: Exchange(CreateTopicsRequest, CreateTopicsResponse),
    ApiKey.DELETE_TOPICS: Exchange(DeleteTopicsRequest, DeleteTopicsResponse),
    ApiKey.DELETE_RECORDS: Exchange(DeleteRecordsRequest, DeleteRecordsResponse),
    ApiKey.INIT_PRODUCER_ID: Exchange(InitProducerIdRequest, InitProducerIdResponse),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Exchange(
        OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
    ),
    ApiKey.DESCRIBE_ACLS: Exchange(DescribeAclsRequest, DescribeAclsResponse),
    ApiKey.CREATE_ACLS: Exchange(CreateAclsRequest, CreateAclsResponse),
    ApiKey.DELETE_ACLS: Exchange(DeleteAclsRequest, DeleteAclsResponse),
    ApiKey.DESCRIBE_CONFIGS: Exchange(DescribeConfigsRequest, DescribeConfigsResponse),
    ApiKey.ALTER_CONFIGS: Exchange(AlterConfigsRequest, AlterConfigsResponse),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Exchange(
        AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
    ),
    ApiKey.DESCRIBE_LOG_DIRS: Exchange(DescribeLogDirsRequest, DescribeLogDirsResponse),
    ApiKey.SASL_AUTHENTICATE: Exchange(SaslAuthenticateRequest, SaslAuthenticateResponse),
    ApiKey.CREATE_PARTITIONS: Exchange(CreatePartitionsRequest, CreatePartitionsResponse),
    ApiKey.CREATE_DELEGATION_TOKEN: Exchange(
        CreateDelegationTokenRequest, CreateDelegationTokenResponse
    ),
    ApiKey.RENEW_DELEGATION_TOKEN: Exchange(
        RenewDelegationTokenRequest, RenewDelegationTokenResponse
    ),
    ApiKey.EXPIRE_DELEGATION_TOKEN: Exchange(
        ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
    ),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: Exchange(
        DescribeDelegationTokenRequest, DescribeDelegationTokenResponse
    ),
    ApiKey.DELETE_GROUPS: Exchange(DeleteGroupsRequest, DeleteGroupsResponse),
    ApiKey.ELECT_LEADERS: Exchange(ElectLeadersRequest, ElectLeadersResponse),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Exchange(
        IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Exchange(
        AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Exchange(
        ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse
    ),
    ApiKey.OFFSET_DELETE: Exchange(OffsetDeleteRequest, OffsetDeleteResponse),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Exchange(
        DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse
    ),
    ApiKey.DESCRIBE_QUORUM: Exchange(DescribeQuorumRequest, DescribeQuorumResponse),
    ApiKey.DESCRIBE_CLUSTER: Exchange(DescribeClusterRequest, DescribeClusterResponse),
    ApiKey.DESCRIBE_PRODUCERS: Exchange(DescribeProducersRequest, DescribeProducersResponse),
    ApiKey.UNREGISTER_BROKER: Exchange(UnregisterBrokerRequest, UnregisterBrokerResponse),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Exchange(
        ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Exchange(
        ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
    ),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: Exchange(
        GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse
    ),
    ApiKey.PUSH_TELEMETRY: Exchange(PushTelemetryRequest, PushTelemetryResponse),
    ApiKey.LIST_CONFIG_RESOURCES: Exchange(ListConfigResourcesRequest, ListConfigResourcesResponse),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Exchange(
        DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse
    ),
    ApiKey.SHARE_GROUP_HEARTBEAT: Exchange(ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse),
    ApiKey.SHARE_GROUP_DESCRIBE: Exchange(ShareGroupDescribeRequest, ShareGroupDescribeResponse),
    ApiKey.SHARE_FETCH: Exchange(ShareFetchRequest, ShareFetchResponse),
    ApiKey.SHARE_ACKNOWLEDGE: Exchange(ShareAcknowledgeRequest, ShareAcknowledgeResponse),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: Exchange(
        DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsResponse
    ),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: Exchange(
        AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse
    ),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: Exchange(
        DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsResponse
    ),
}
