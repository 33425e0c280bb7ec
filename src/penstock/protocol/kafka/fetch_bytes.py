"""Fetches as bytes: what differs between two requests, and answers made of parts that are kept.

A client without a session names all its partitions each time, and is answered for all of them. But
from one request to the next only the positions of those that it has read from differ, and in the
answer only the parts for partitions with news.
"""

from collections.abc import Iterable
from itertools import pairwise
from struct import Struct
from typing import Final, NamedTuple

from penstock.model.file_ranges import FileRange
from penstock.protocol.kafka.codec import encode, encode_pieces
from penstock.protocol.kafka.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    NodeEndpoint,
    PartitionData,
)
from penstock.protocol.kafka.primitives import varint

_FIRST_FLEXIBLE: Final = 12
_FIRST_BY_ID: Final = 13
_UUID_SIZE: Final = 16
_pack_count = Struct(">i").pack
_pack_length = Struct(">h").pack


class Position(NamedTuple):
    """What a request says of one partition."""

    partition: int
    term: int
    offset: int
    last_fetched_term: int
    bytes_max: int


class _Form(NamedTuple):
    """How a version lays out the begin of a request and its partitions, which have one size."""

    head: Struct
    head_fields: tuple[str, ...]
    partition: Struct
    partition_fields: tuple[str, ...]


def _form(version: int) -> _Form:
    head = [
        ("i", "replica_id", version < 15),
        ("i", "max_wait_ms", True),
        ("i", "min_bytes", True),
        ("i", "max_bytes", version >= 3),
        ("b", "isolation_level", version >= 4),
        ("i", "session_id", version >= 7),
        ("i", "session_epoch", version >= 7),
    ]
    partition = [
        ("i", "partition", True),
        ("i", "term", version >= 9),
        ("q", "offset", True),
        ("i", "last_fetched_term", version >= 12),
        ("q", "log_start", version >= 5),
        ("i", "bytes_max", True),
        # How many tagged fields follow.
        ("B", "tags", version >= _FIRST_FLEXIBLE),
    ]
    return _Form(
        Struct(">" + "".join(code for code, _, is_there in head if is_there)),
        tuple(name for _, name, is_there in head if is_there),
        Struct(">" + "".join(code for code, _, is_there in partition if is_there)),
        tuple(name for _, name, is_there in partition if is_there),
    )


_FORMS: Final = {version: _form(version) for version in range(19)}


class FetchBytes:
    """One request as it came, and where in it its partitions are."""

    __slots__ = ("_body", "_end", "_form", "_starts", "_version", "request")

    def __init__(self, request: FetchRequest, version: int, body: bytes) -> None:
        self.request = request
        self._version = version
        self._form = _FORMS[version]
        self._body = body
        self._starts, self._end = self._lay_out()

    def _lay_out(self) -> tuple[list[int], int]:
        size = self._form.partition.size
        position = self._form.head.size + len(self._count(len(self.request.topics)))
        starts = []
        for topic in self.request.topics:
            position += self._topic_size(topic) + len(self._count(len(topic.partitions)))
            for _ in topic.partitions:
                starts.append(position)
                position += size
            position += self._version >= _FIRST_FLEXIBLE
        return starts, position

    def _topic_size(self, topic: FetchTopic) -> int:
        if self._version >= _FIRST_BY_ID:
            return _UUID_SIZE
        length = len(topic.topic.encode())
        return length + (2 if self._version < _FIRST_FLEXIBLE else len(varint(length + 1)))

    def _count(self, count: int) -> bytes:
        return array_count(count, self._version)

    @property
    def is_regular(self) -> bool:
        """Whether it is laid out as expected: with tagged fields, for one, it is not."""
        indexes = [each.partition for topic in self.request.topics for each in topic.partitions]
        if self._end > len(self._body):
            return False
        found = [self.at(number) for number in range(len(self._starts))]
        return [each.partition for each in found if each is not None] == indexes

    def at(self, number: int) -> Position | None:
        """What the request says of one of its partitions."""
        values = self._form.partition.unpack_from(self._body, self._starts[number])
        known = dict(zip(self._form.partition_fields, values, strict=True))
        if known.pop("tags", 0):
            return None
        known.pop("log_start", None)
        return Position(**{"term": -1, "last_fetched_term": -1, **known})

    def advance(self, version: int, body: bytes) -> list[int] | None:
        """Becomes the next request of the same client; gives which partitions have another
        position, or None, unchanged, if more than positions and limits differ."""
        before = self._body
        if version != self._version or len(body) != len(before):
            return None
        changed: list[int] = []
        head, first = self._form.head.size, self._starts[0]
        if before[head:first] != body[head:first] or before[self._end :] != body[self._end :]:
            return None
        if not self._compare(body, 0, len(self._starts), changed) or not self._take_head(body):
            return None
        self._body = body
        return changed

    def _compare(self, body: bytes, first: int, end: int, changed: list[int]) -> bool:
        """Notes which of some partitions differ; False if something else does."""
        before = self._body
        start = self._starts[first]
        stop = self._starts[end] if end < len(self._starts) else self._end
        if before[start:stop] == body[start:stop]:
            return True
        if end - first > 1:
            middle = (first + end) // 2
            return self._compare(body, first, middle, changed) and self._compare(
                body, middle, end, changed
            )
        changed.append(first)
        rest = start + self._form.partition.size
        has_tags = self._version >= _FIRST_FLEXIBLE and body[rest - 1] != 0
        same_partition = before[start : start + 4] == body[start : start + 4]
        return same_partition and not has_tags and before[rest:stop] == body[rest:stop]

    def _take_head(self, body: bytes) -> bool:
        """How long to wait and how much to send may differ, and nothing else."""
        size = self._form.head.size
        if self._body[:size] == body[:size]:
            return True
        values = self._form.head.unpack_from(body)
        known = dict(zip(self._form.head_fields, values, strict=True))
        request = self.request
        for name in ("replica_id", "isolation_level", "session_id", "session_epoch"):
            if known.pop(name, getattr(request, name)) != getattr(request, name):
                return False
        for name, value in known.items():
            setattr(request, name, value)
        return True


def array_count(count: int, version: int) -> bytes:
    return varint(count + 1) if version >= _FIRST_FLEXIBLE else _pack_count(count)


def encode_fetch_response(response: FetchResponse, version: int) -> list[bytes | FileRange]:
    """The body in parts to be sent in order; those that are file ranges were not read.

    The compiled encoder appends a `records` value as it is, so a range of a file takes its place
    among the pieces. Those in between are joined, and each file range is left to the socket.
    """
    return _joined(encode_pieces(response, version))


class FetchReply:
    """An answer in parts; those that nobody replaces are sent again as they are."""

    __slots__ = ("_head", "_parts", "_places", "_prefix_size", "_suffix_size", "_tail", "_version")

    def __init__(self, request: FetchRequest, version: int) -> None:
        self._version = version
        is_flexible = version >= _FIRST_FLEXIBLE
        nothing = encode(FetchResponse(responses=[]), version)
        no_topics = array_count(0, version)
        # What ends a response: no tagged fields, if anything; each topic ends in the same way.
        self._tail = b"\0" if is_flexible else b""
        self._head = nothing[: len(nothing) - len(no_topics) - len(self._tail)]
        self._head += array_count(len(request.topics), version)
        lone = encode(FetchResponse(responses=[FetchableTopicResponse()]), version)
        self._suffix_size = 2 * len(self._tail)
        self._prefix_size = len(lone) - self._suffix_size
        # Begins of topics, partitions, and ends of topics, in the order of the request.
        self._parts: list[bytes] = []
        self._places: list[int] = []
        for topic in request.topics:
            self._parts.append(self._topic(topic))
            self._places += range(len(self._parts), len(self._parts) + len(topic.partitions))
            self._parts += [b""] * len(topic.partitions)
            self._parts.append(self._tail)

    def _topic(self, topic: FetchTopic) -> bytes:
        count = array_count(len(topic.partitions), self._version)
        if self._version >= _FIRST_BY_ID:
            return topic.topic_id.bytes + count
        name = topic.topic.encode()
        is_flexible = self._version >= _FIRST_FLEXIBLE
        length = varint(len(name) + 1) if is_flexible else _pack_length(len(name))
        return length + name + count

    def fill(
        self, news: Iterable[tuple[int, PartitionData]], nodes: list[NodeEndpoint]
    ) -> list[bytes | FileRange]:
        """The whole answer, with these parts in place of the old ones, by their number in the
        request. Those with records are not kept."""
        parts, loose = self._parts, {}
        for number, data in news:
            place = self._places[number]
            pieces = self._encode(data)
            if len(pieces) == 1 and isinstance(pieces[0], bytes):
                parts[place] = pieces[0]
            else:
                loose[place] = pieces
        body: list[bytes | FileRange] = []
        cuts = [-1, *sorted(loose), len(parts)]
        for before, place in pairwise(cuts):
            body += loose.get(before, ())
            body.append(b"".join(parts[before + 1 : place]))
        body[0] = self._head + body[0]  # type: ignore[operator]  # it begins with bytes
        body.append(self._end(nodes) if nodes else self._tail)
        return _joined(body)

    def _end(self, nodes: list[NodeEndpoint]) -> bytes:
        lone = encode(FetchResponse(responses=[], node_endpoints=nodes), self._version)
        without = encode(FetchResponse(responses=[]), self._version)
        return lone[len(without) - len(self._tail) :]

    def _encode(self, data: PartitionData) -> list[bytes | FileRange]:
        lone = FetchResponse(responses=[FetchableTopicResponse(partitions=[data])])
        pieces = _joined(encode_pieces(lone, self._version))
        first, last = pieces[0], pieces[-1]
        assert isinstance(first, bytes)
        pieces[0] = first[self._prefix_size :]
        if self._suffix_size:
            last = pieces[-1]
            assert isinstance(last, bytes)
            pieces[-1] = last[: -self._suffix_size]
        return [piece for piece in pieces if len(piece)]


def _joined(pieces: Iterable[bytes | memoryview | FileRange]) -> list[bytes | FileRange]:
    """With bytes from memory in as few parts as there can be."""
    parts: list[bytes | FileRange] = []
    run: list[bytes | memoryview] = []
    for piece in pieces:
        if isinstance(piece, FileRange):
            parts.append(b"".join(run))
            parts.append(piece)
            run = []
        else:
            run.append(piece)
    if run:
        parts.append(b"".join(run))
    return parts
