"""Every API that this broker serves, listed by hand; ApiVersions tells clients just these."""

from penstock.frontdoor.kafka.api import Api
from penstock.frontdoor.kafka.handlers import (
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    api_versions,
    create_acls,
    create_delegation_token,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_cluster,
    describe_configs,
    describe_delegation_token,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    describe_user_scram_credentials,
    elect_leaders,
    expire_delegation_token,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    renew_delegation_token,
    sasl_authenticate,
    sasl_handshake,
    sync_group,
    unregister_broker,
)
from penstock.protocol.kafka.api_keys import ApiKey

_MODULES = (
    produce,
    fetch,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    find_coordinator,
    join_group,
    heartbeat,
    leave_group,
    sync_group,
    describe_groups,
    list_groups,
    sasl_handshake,
    create_topics,
    delete_topics,
    delete_records,
    init_producer_id,
    offset_for_leader_epoch,
    describe_acls,
    create_acls,
    delete_acls,
    describe_configs,
    alter_configs,
    alter_replica_log_dirs,
    describe_log_dirs,
    sasl_authenticate,
    create_partitions,
    create_delegation_token,
    renew_delegation_token,
    expire_delegation_token,
    describe_delegation_token,
    delete_groups,
    elect_leaders,
    incremental_alter_configs,
    alter_partition_reassignments,
    list_partition_reassignments,
    offset_delete,
    describe_user_scram_credentials,
    describe_quorum,
    describe_cluster,
    describe_producers,
    unregister_broker,
    list_config_resources,
    describe_topic_partitions,
)


def _collect() -> dict[ApiKey, Api]:
    apis: dict[ApiKey, Api] = {}
    for module in _MODULES:
        api: Api = module.API
        assert api.key not in apis, f"{api.key.name} is listed twice"
        apis[api.key] = api
    apis[ApiKey.API_VERSIONS] = api_versions.make_api(apis.values())
    return apis


APIS: dict[ApiKey, Api] = _collect()
