"""What precedes a request's or response's body in its frame; written by hand for speed.

A request in a flexible version has tagged fields after the client id, which stays an ordinary
string. A response in a flexible version has tagged fields after the correlation id, except that
of ApiVersions: its reader can't know yet which version the broker speaks (KIP-511).
"""

import struct
from collections.abc import Mapping
from typing import NamedTuple

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.primitives import DecodeError, skip_tagged_fields
from penstock.protocol.kafka.schema import VERSION_LAST

REQUEST_HEADER = struct.Struct(">hhih")
CORRELATION_ID = struct.Struct(">i")
CORRELATION_ID_AND_NO_TAGS = struct.Struct(">ix")
NEVER_FLEXIBLE = VERSION_LAST + 1

# By API; a copy of what the messages declare, so that a client can speak without importing all of
# them. tests/unit/protocol/test_headers.py compares the two.
_FLEXIBLE_FROM: Mapping[ApiKey, int] = {
    ApiKey.PRODUCE: 9,
    ApiKey.FETCH: 12,
    ApiKey.LIST_OFFSETS: 6,
    ApiKey.METADATA: 9,
    ApiKey.OFFSET_COMMIT: 8,
    ApiKey.OFFSET_FETCH: 6,
    ApiKey.FIND_COORDINATOR: 3,
    ApiKey.JOIN_GROUP: 6,
    ApiKey.HEARTBEAT: 4,
    ApiKey.LEAVE_GROUP: 4,
    ApiKey.SYNC_GROUP: 4,
    ApiKey.DESCRIBE_GROUPS: 5,
    ApiKey.LIST_GROUPS: 3,
    ApiKey.SASL_HANDSHAKE: NEVER_FLEXIBLE,
    ApiKey.API_VERSIONS: 3,
    ApiKey.CREATE_TOPICS: 5,
    ApiKey.DELETE_TOPICS: 4,
    ApiKey.DELETE_RECORDS: 2,
    ApiKey.INIT_PRODUCER_ID: 2,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: 4,
    ApiKey.DESCRIBE_ACLS: 2,
    ApiKey.CREATE_ACLS: 2,
    ApiKey.DELETE_ACLS: 2,
    ApiKey.DESCRIBE_CONFIGS: 4,
    ApiKey.ALTER_CONFIGS: 2,
    ApiKey.ALTER_REPLICA_LOG_DIRS: 2,
    ApiKey.DESCRIBE_LOG_DIRS: 2,
    ApiKey.SASL_AUTHENTICATE: 2,
    ApiKey.CREATE_PARTITIONS: 2,
    ApiKey.CREATE_DELEGATION_TOKEN: 2,
    ApiKey.RENEW_DELEGATION_TOKEN: 2,
    ApiKey.EXPIRE_DELEGATION_TOKEN: 2,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: 2,
    ApiKey.DELETE_GROUPS: 2,
    ApiKey.ELECT_LEADERS: 2,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 1,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: 0,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: 0,
    ApiKey.OFFSET_DELETE: NEVER_FLEXIBLE,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: 0,
    ApiKey.DESCRIBE_QUORUM: 0,
    ApiKey.DESCRIBE_CLUSTER: 0,
    ApiKey.DESCRIBE_PRODUCERS: 0,
    ApiKey.UNREGISTER_BROKER: 0,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: 0,
    ApiKey.CONSUMER_GROUP_DESCRIBE: 0,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: 0,
    ApiKey.PUSH_TELEMETRY: 0,
    ApiKey.LIST_CONFIG_RESOURCES: 0,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: 0,
    ApiKey.SHARE_GROUP_HEARTBEAT: 0,
    ApiKey.SHARE_GROUP_DESCRIBE: 0,
    ApiKey.SHARE_FETCH: 0,
    ApiKey.SHARE_ACKNOWLEDGE: 0,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: 0,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: 0,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: 0,
}
# Looked up for every request, which plain numbers make quicker.
FLEXIBLE_FROM = {int(key): first for key, first in _FLEXIBLE_FROM.items()}


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def decode_request_header(frame: memoryview) -> tuple[RequestHeader, int]:
    """The header of a frame (without its size) and where the body begins.

    The header of an API that we don't know is read as one without tagged fields, so that the
    connection can still name the API in its reply or its log.
    """
    end = len(frame)
    if end < 10:
        raise DecodeError("a request header is cut short")
    api_key, api_version, correlation_id, length = REQUEST_HEADER.unpack_from(frame)
    position = 10
    client_id = None
    if length >= 0:
        position += length
        if position > end:
            raise DecodeError("a client id is cut short")
        client_id = _client_id(frame[10:position])
    if api_version >= FLEXIBLE_FROM.get(api_key, NEVER_FLEXIBLE):
        position = _skip_tags(frame, position, end)
    fields = (api_key, api_version, correlation_id, client_id)
    return tuple.__new__(RequestHeader, fields), position


def encode_request_header(
    api_key: int, api_version: int, correlation_id: int, client_id: str | None
) -> bytes:
    name = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(name)
    header = REQUEST_HEADER.pack(api_key, api_version, correlation_id, length) + name
    return header + b"\0" if api_version >= FLEXIBLE_FROM[api_key] else header


def encode_response_header(api_key: int, api_version: int, correlation_id: int) -> bytes:
    if _response_has_tags(api_key, api_version):
        return CORRELATION_ID_AND_NO_TAGS.pack(correlation_id)
    return CORRELATION_ID.pack(correlation_id)


def decode_response_header(api_key: int, api_version: int, frame: memoryview) -> tuple[int, int]:
    """A response's correlation id and where its body begins."""
    if len(frame) < CORRELATION_ID.size:
        raise DecodeError("a response header is cut short")
    (correlation_id,) = CORRELATION_ID.unpack_from(frame)
    position = CORRELATION_ID.size
    if _response_has_tags(api_key, api_version):
        position = _skip_tags(frame, position, len(frame))
    return correlation_id, position


def _response_has_tags(api_key: int, api_version: int) -> bool:
    flexible_from = FLEXIBLE_FROM.get(api_key, NEVER_FLEXIBLE)
    return api_version >= flexible_from and api_key != ApiKey.API_VERSIONS


def _client_id(raw: memoryview) -> str:
    try:
        return str(raw, "utf-8")
    except UnicodeDecodeError as error:
        raise DecodeError("a client id is not UTF-8") from error


def _skip_tags(frame: memoryview, position: int, end: int) -> int:
    try:
        count = frame[position]
        if count == 0:
            return position + 1
        return skip_tagged_fields(frame, position + 1, count, end)
    except IndexError as error:
        raise DecodeError("a header is cut short") from error
