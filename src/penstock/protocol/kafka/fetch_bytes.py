"""Fetches as bytes: what differs between two requests, and answers made of parts that are kept.

A client without a session names all its partitions each time, and is answered for all of them. But
from one request to the next only the positions of those that it has read from differ, and in the
answer only the parts for partitions with news.
"""

from collections.abc import Iterable
from itertools import pairwise
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import Final, NamedTuple

from penstock.model.file_ranges import FileRange
from penstock.protocol.kafka.codec import DecodeError, encode, encode_pieces
from penstock.protocol.kafka.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    NodeEndpoint,
    PartitionData,
)
from penstock.protocol.kafka.messages.share_fetch import ShareFetchResponse
from penstock.protocol.kafka.primitives import read_varint, varint

_FIRST_FLEXIBLE: Final = 12
_FIRST_BY_ID: Final = 13
_UUID_SIZE: Final = 16
_COUNT_SIZE: Final = 4
_LENGTH_SIZE: Final = 2
_pack_count = Struct(">i").pack
_unpack_count = Struct(">i").unpack_from
_pack_length = Struct(">h").pack
_unpack_length = Struct(">h").unpack_from


class Position(NamedTuple):
    """What a request says of one partition."""

    partition: int
    term: int
    offset: int
    last_fetched_term: int
    bytes_max: int


class _Form(NamedTuple):
    """How a version lays out the start of a request and its partitions, which have one size."""

    head: Struct
    head_fields: tuple[str, ...]
    partition: Struct
    partition_fields: tuple[str, ...]
    # Cuts partitions that lie one behind the other into the bytes of each.
    cut: Struct


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
    layout = Struct(">" + "".join(code for code, _, is_there in partition if is_there))
    return _Form(
        Struct(">" + "".join(code for code, _, is_there in head if is_there)),
        tuple(name for _, name, is_there in head if is_there),
        layout,
        tuple(name for _, name, is_there in partition if is_there),
        Struct(f"{layout.size}s"),
    )


_FORMS: Final = {version: _form(version) for version in range(19)}

# The bytes of each partition, alone in a tuple as `Struct` gives them.
_Cuttings = set[tuple[bytes]]


class _Cut(NamedTuple):
    """A request in parts: its partitions by the bytes that name their topic, and what follows."""

    topics: dict[bytes, _Cuttings]
    partitions: int
    rest: bytes


class FetchBytes:
    """One request as it came. The next one may name the partitions in any order: librdkafka starts
    with another one each time, so that all get their turn."""

    __slots__ = ("_cut", "_form", "_numbers", "_version", "is_regular", "request")

    def __init__(self, request: FetchRequest, version: int, body: bytes) -> None:
        self.request = request
        self._version = version
        self._form = _FORMS[version]
        self._numbers = self._numbered()
        self._cut = self._cut_up(body)
        # Whether it is laid out as expected: with tagged fields, for one, it is not.
        self.is_regular = self._cut is not None and self._is_as_read(self._cut)

    def _numbered(self) -> dict[tuple[bytes, int], int]:
        """The place of each partition in the request, by its topic and index."""
        keys = [
            (self._name(topic), each.partition)
            for topic in self.request.topics
            for each in topic.partitions
        ]
        return {key: number for number, key in enumerate(keys)}

    def _name(self, topic: FetchTopic) -> bytes:
        if self._version >= _FIRST_BY_ID:
            return topic.topic_id.bytes
        name = topic.topic.encode()
        return string_length(len(name), self._version) + name

    def _is_as_read(self, cut: _Cut) -> bool:
        found = [
            (topic, self._position(each))
            for topic, partitions in cut.topics.items()
            for (each,) in partitions
        ]
        keys = {(topic, each.partition) for topic, each in found if each is not None}
        return keys == self._numbers.keys() and len(keys) == cut.partitions

    def _cut_up(self, body: bytes) -> _Cut | None:
        form, topics, total = self._form, dict[bytes, _Cuttings](), 0
        has_tags = self._version >= _FIRST_FLEXIBLE
        try:
            count, position = self._count(body, form.head.size)
            for _ in range(count):
                name_end = self._name_end(body, position)
                topic = body[position:name_end]
                partitions, start = self._count(body, name_end)
                if partitions < 0:
                    return None
                position = start + partitions * form.partition.size
                cuttings = set(form.cut.iter_unpack(body[start:position]))
                # A topic may be named twice, where the first partition is one from its middle.
                topics.setdefault(topic, cuttings).update(cuttings)
                total += partitions
                if has_tags:
                    if body[position]:
                        return None
                    position += 1
        except (DecodeError, IndexError, StructError):
            return None
        return _Cut(topics, total, body[position:])

    def _count(self, body: bytes, position: int) -> tuple[int, int]:
        if self._version >= _FIRST_FLEXIBLE:
            count, position = read_varint(body, position)
            return count - 1, position
        return _unpack_count(body, position)[0], position + _COUNT_SIZE

    def _name_end(self, body: bytes, position: int) -> int:
        if self._version >= _FIRST_BY_ID:
            return position + _UUID_SIZE
        if self._version >= _FIRST_FLEXIBLE:
            length, position = read_varint(body, position)
            return position + length - 1
        return position + _LENGTH_SIZE + int(_unpack_length(body, position)[0])

    def _position(self, cutting: bytes) -> Position | None:
        """What these bytes say; None if more follows."""
        values = self._form.partition.unpack(cutting)
        known = dict(zip(self._form.partition_fields, values, strict=True))
        if known.pop("tags", 0):
            return None
        known.pop("log_start", None)
        return Position(**{"term": -1, "last_fetched_term": -1, **known})

    def advance(self, version: int, body: bytes) -> dict[int, Position] | None:
        """Becomes the next request of the same client; gives the partitions that have another
        position, by their number, or None, unchanged, if more than positions and limits differ."""
        last, cut = self._cut, self._cut_up(body) if version == self._version else None
        if last is None or cut is None:
            return None
        if cut.partitions != last.partitions or cut.rest != last.rest:
            return None
        if cut.topics.keys() != last.topics.keys():
            return None
        changed: dict[int, Position] = {}
        for topic, cuttings in cut.topics.items():
            known = last.topics[topic]
            moved = self._by_number(topic, cuttings - known)
            gone = self._by_number(topic, known - cuttings)
            if moved is None or gone is None or moved.keys() != gone.keys():
                return None
            changed |= moved
        if not self._take_head(body):
            return None
        self._cut = cut
        return changed

    def _by_number(self, topic: bytes, cuttings: _Cuttings) -> dict[int, Position] | None:
        found: dict[int, Position] = {}
        for (cutting,) in cuttings:
            position = self._position(cutting)
            number = None if position is None else self._numbers.get((topic, position.partition))
            if position is None or number is None or number in found:
                return None
            found[number] = position
        return found

    def _take_head(self, body: bytes) -> bool:
        """How long to wait and how much to send may differ, and nothing else."""
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


def string_length(length: int, version: int) -> bytes:
    return varint(length + 1) if version >= _FIRST_FLEXIBLE else _pack_length(length)


def encode_fetch_response(
    response: FetchResponse | ShareFetchResponse, version: int
) -> list[bytes | FileRange]:
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
        return string_length(len(name), self._version) + name + count

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
