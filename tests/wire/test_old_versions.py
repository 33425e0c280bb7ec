"""Proves the versions that kio has dropped, against the schemas of kafka-python's early days."""

import importlib
import random
from typing import Any

import pytest

from penstock.protocol.kafka.codec import decode, encode
from penstock.protocol.kafka.layout import layout_of
from penstock.protocol.kafka.messages.describe_log_dirs import DescribeLogDirsRequest
from penstock.protocol.kafka.schema import ARRAY, Kind, schema_of
from tests.wire.kio_oracle import is_known
from tests.wire.samples import MESSAGE_VERSIONS, name_of, sample

# kafka-python reads its schema files by a deprecated call.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
SAMPLES = 20
# Its schema has one partition here where Kafka and every other version have a list.
WRONG_IN_KAFKA_PYTHON = (DescribeLogDirsRequest, 0)
TOO_OLD_FOR_KIO = [
    case for case in MESSAGE_VERSIONS if not is_known(*case) and case != WRONG_IN_KAFKA_PYTHON
]
MODULES = {
    "Produce": "produce",
    "Fetch": "fetch",
    "ListOffsets": "list_offsets",
    "OffsetCommit": "commit",
    "OffsetFetch": "commit",
    "CreateTopics": "admin",
    "DeleteTopics": "admin",
    "OffsetForLeaderEpoch": "offset_for_leader_epoch",
    "DescribeConfigs": "admin",
    "DescribeLogDirs": "admin",
}


@pytest.mark.parametrize("case", TOO_OLD_FOR_KIO, ids=name_of)
def test_bytes_equal_kafka_python(case: tuple[type, int]) -> None:
    message, version = case
    schema = old_schema(message, version)
    rng = random.Random(name_of(case))
    for _ in range(SAMPLES):
        ours = sample(message, version, rng)
        encoded = encode(ours, version)
        assert encoded == schema.encode(positional(ours, version))
        assert decode(message, version, encoded) == ours


def test_describe_log_dirs_request_did_not_change_from_version_0_to_1() -> None:
    rng = random.Random(35)
    for _ in range(SAMPLES):
        request = sample(DescribeLogDirsRequest, 0, rng)
        assert encode(request, 0) == encode(request, 1)
        assert decode(DescribeLogDirsRequest, 0, encode(request, 0)) == request


def old_schema(message: type, version: int) -> Any:
    api = message.__name__.removesuffix("Request").removesuffix("Response")
    module = importlib.import_module(f"kafka.protocol.old.{MODULES[api]}")
    return getattr(module, f"{message.__name__}_v{version}").SCHEMA


def positional(message: Any, version: int) -> tuple[Any, ...]:
    """The message as nested tuples in wire order, which is how those schemas take it."""
    values = []
    for field in layout_of(schema_of(type(message)), version).ordinary:
        value = getattr(message, field.name)
        if field.kind is ARRAY and value is not None and not isinstance(field.element, Kind):
            value = [positional(element, version) for element in value]
        values.append(value)
    return tuple(values)
