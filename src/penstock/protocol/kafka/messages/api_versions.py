"""ApiVersions: what this broker speaks. Its response header never has tagged fields."""

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.schema import (
    array,
    boolean,
    int16,
    int32,
    int64,
    message,
    string,
    struct,
)


@message(ApiKey.API_VERSIONS, versions="0-4", flexible="3+")
class ApiVersionsRequest:
    client_software_name: str = string("3+")
    client_software_version: str = string("3+")


@struct
class ApiVersion:
    api_key: int = int16("0+")
    min_version: int = int16("0+")
    max_version: int = int16("0+")


@struct
class SupportedFeatureKey:
    name: str = string("3+")
    min_version: int = int16("3+")
    max_version: int = int16("3+")


@struct
class FinalizedFeatureKey:
    name: str = string("3+")
    max_version_level: int = int16("3+")
    min_version_level: int = int16("3+")


@message(ApiKey.API_VERSIONS, versions="0-4", flexible="3+")
class ApiVersionsResponse:
    error_code: int = int16("0+")
    api_keys: list[ApiVersion] = array(ApiVersion, "0+")
    throttle_time_ms: int = int32("1+")
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, "3+", tag=0)
    finalized_features_epoch: int = int64("3+", default=-1, tag=1)
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, "3+", tag=2)
    zk_migration_ready: bool = boolean("3+", tag=3)
