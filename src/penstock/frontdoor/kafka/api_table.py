"""Every API that this broker serves, listed by hand; ApiVersions tells clients just these."""

from penstock.frontdoor.kafka.api import Api
from penstock.frontdoor.kafka.handlers import (
    alter_configs,
    alter_partition_reassignments,
    api_versions,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    elect_leaders,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
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
    create_topics,
    delete_topics,
    delete_records,
    init_producer_id,
    offset_for_leader_epoch,
    describe_configs,
    alter_configs,
    describe_log_dirs,
    create_partitions,
    delete_groups,
    elect_leaders,
    incremental_alter_configs,
    alter_partition_reassignments,
    list_partition_reassignments,
    offset_delete,
    describe_quorum,
    describe_cluster,
    describe_producers,
    unregister_broker,
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
