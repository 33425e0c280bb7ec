"""What consumers of the classic protocol say to each other inside their groups' metadata.

The broker only reads it where it has to: to know what a group reads, and to move it to the new
protocol (KIP-848) and back. Versions 0 to 3; later ones begin like version 3. Not flexible.
"""

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from penstock.groups.layout import Reader, write_string
from penstock.records.batch import CorruptBatch

# Only groups of this protocol type carry subscriptions in a form that is ours to read.
CONSUMER_PROTOCOL_TYPE = "consumer"
VERSION_MAX = 3
OWNED_FROM, GENERATION_FROM, RACK_FROM = 1, 2, 3
NO_GENERATION = -1

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_NO_DATA = _INT32.pack(-1)

# By topic's name.
NamedPartitions = Mapping[str, frozenset[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """What a member says when it joins."""

    topics: frozenset[str]
    # What it had when it joined: nothing if it gives up everything before it joins again.
    owned: NamedPartitions = field(default_factory=dict)
    generation: int = NO_GENERATION
    rack_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedAssignment:
    """What the leader of a generation has given to a member."""

    partitions: NamedPartitions
    # Of an assignor that gives its members more than partitions.
    has_user_data: bool = False


def read_subscription(metadata: bytes) -> Subscription | None:
    """None when it is not of that form."""
    try:
        return _subscription(Reader(metadata))
    except CorruptBatch:
        return None


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics in a consumer's metadata, or None when it is not of that form.

    Read as version 0, which every later version begins with: a version, then the topics' names.
    """
    try:
        reader = Reader(metadata)
        reader.int16()
        return _names(reader)
    except CorruptBatch:
        return None


def read_version(metadata: bytes) -> int:
    """The one that the member can read; 0 when it says none."""
    return min(max(Reader(metadata).int16(), 0), VERSION_MAX) if len(metadata) > 1 else 0


def read_assignment(data: bytes) -> EmbeddedAssignment | None:
    """None when it is not of that form. A member that has never synced has nothing."""
    if not data:
        return EmbeddedAssignment(partitions={})
    try:
        reader = Reader(data)
        reader.int16()
        partitions = _partitions(reader)
        return EmbeddedAssignment(partitions=partitions, has_user_data=bool(_user_data(reader)))
    except CorruptBatch:
        return None


def write_assignment(version: int, partitions: Mapping[str, Iterable[int]]) -> bytes:
    parts = [_INT16.pack(version), _INT32.pack(len(partitions))]
    for topic, numbers in partitions.items():
        listed = sorted(numbers)
        parts += (write_string(topic), _INT32.pack(len(listed)), *map(_INT32.pack, listed))
    return b"".join((*parts, _NO_DATA))


def _subscription(reader: Reader) -> Subscription:
    version = reader.int16()
    if version < 0:
        raise CorruptBatch(f"a subscription has the version {version}")
    topics = _names(reader)
    _user_data(reader)
    owned = _partitions(reader) if version >= OWNED_FROM else {}
    generation = reader.int32() if version >= GENERATION_FROM else NO_GENERATION
    rack_id = reader.nullable_string() if version >= RACK_FROM else None
    return Subscription(topics=topics, owned=owned, generation=generation, rack_id=rack_id or None)


def _names(reader: Reader) -> frozenset[str]:
    return frozenset(reader.string() for _ in range(reader.array_length()))


def _partitions(reader: Reader) -> dict[str, frozenset[int]]:
    topics: dict[str, frozenset[int]] = {}
    for _ in range(reader.array_length()):
        name = reader.string()
        numbers = frozenset(reader.int32() for _ in range(reader.array_length()))
        topics[name] = topics.get(name, frozenset()) | numbers
    return topics


def _user_data(reader: Reader) -> bytes:
    return reader.nullable_bytes() or b""
