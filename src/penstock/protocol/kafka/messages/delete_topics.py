"""DeleteTopics: by name, and from version 6 on by name or id."""

from uuid import UUID

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.schema import array, int16, int32, message, string, struct, uuid


@struct
class DeleteTopicState:
    name: str | None = string("6+", nullable="6+", default=None)
    topic_id: UUID = uuid("6+")


@message(ApiKey.DELETE_TOPICS, versions="0-6", flexible="4+")
class DeleteTopicsRequest:
    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+")
    topic_names: list[str] = array(string, "0-5")
    timeout_ms: int = int32("0+")


@struct
class DeletableTopicResult:
    name: str | None = string("0+", nullable="6+")
    topic_id: UUID = uuid("6+")
    error_code: int = int16("0+")
    error_message: str | None = string("5+", nullable="5+", default=None)


@message(ApiKey.DELETE_TOPICS, versions="0-6", flexible="4+")
class DeleteTopicsResponse:
    throttle_time_ms: int = int32("1+")
    responses: list[DeletableTopicResult] = array(DeletableTopicResult, "0+")
