"""What is known to be safe about a partition: the file that recovery starts from.

It is written again, atomically, whenever a segment was rolled, removed or compacted, or enough was
written. Everything it names is on disk for good: what differs from it later is damage.
"""

import json
import struct
from collections.abc import Sequence
from os.path import join
from pathlib import Path
from typing import Any, NamedTuple

from penstock.model.errors import StorageDamaged
from penstock.model.ids import NO_END, UNKNOWN_END, LogEnd
from penstock.records.own_entries import OwnKind
from penstock.storage.checksummed import unwrap, wrap
from penstock.storage.file_system import AnyPath, FileSystem
from penstock.storage.layout import CHECKPOINT
from penstock.storage.own_table import LogBase, OwnEntry, OwnTable
from penstock.storage.segment import SegmentFacts

_MAGIC = b"PNCP"
_VERSION = 2
_FACTS_LENGTH = struct.Struct(">I")
_ENCODER = json.JSONEncoder(separators=(",", ":"))


class Doubt(NamedTuple):
    """What a log may lack of what was committed; positions of the Raft log, not of a file."""

    # Where the log ended before its tail was cut, until somebody has filled it in again.
    lost: LogEnd = NO_END
    # Where some voter's log ended, when all of them together could elect nobody.
    needed: LogEnd = NO_END
    # What an operator gave up of that.
    accepted: LogEnd = NO_END


NO_DOUBT = Doubt()
# As a checkpoint has it; nearly all of them do.
_NO_DOUBT_FACTS = [list(end) for end in NO_DOUBT]


class Checkpoint(NamedTuple):
    start_offset: int = 0
    # In order; the last one may have grown since. The flush mark is the end of the last one.
    segments: tuple[SegmentFacts, ...] = ()
    # What is before the first entry, and Raft's own entries up to the flush mark.
    base: LogBase = LogBase()
    own: Sequence[OwnEntry] = ()
    # Compaction has seen everything before this offset.
    cleaned_offset: int = 0
    # Only before this offset may records be missing between batches.
    sparse_below: int = 0
    # The owner's state, opaque here, after it has applied everything before `state_offset`.
    state: bytes = b""
    state_offset: int = 0
    doubt: Doubt = NO_DOUBT

    @property
    def flushed_offset(self) -> int:
        return self.segments[-1].next_offset if self.segments else self.start_offset

    @property
    def saved_offset(self) -> int:
        """A start reads no records before it: they are on disk, and the owner's state has them."""
        return min(self.flushed_offset, self.state_offset)

    @property
    def flushed_base(self) -> int:
        return self.segments[-1].base_offset if self.segments else self.start_offset

    @property
    def flushed_index(self) -> int:
        return self.flushed_end.index

    @property
    def flushed_end(self) -> LogEnd:
        """The flush mark as a place in the Raft log, which any file could carry."""
        own = OwnTable(self.base, self.own)
        return LogEnd(own.last_term, own.last_index(self.flushed_offset))

    def encode(self) -> bytes:
        facts = {
            "start_offset": self.start_offset,
            "cleaned_offset": self.cleaned_offset,
            "sparse_below": self.sparse_below,
            "state_offset": self.state_offset,
            "doubt": self.doubt,
            "base": (*self.base[:3], self.base.membership.hex(), self.base.membership_index),
            "own": [(*entry[:4], entry.payload.hex()) for entry in self.own],
            "segments": self.segments,
        }
        text = _ENCODER.encode(facts).encode()
        return wrap(_MAGIC, _VERSION, _FACTS_LENGTH.pack(len(text)) + text + self.state)


def decode_checkpoint(path: AnyPath, data: bytes) -> Checkpoint:
    content = unwrap(path, _MAGIC, _VERSION, data)
    try:
        (length,) = _FACTS_LENGTH.unpack_from(content)
        end = _FACTS_LENGTH.size + length
        facts = json.loads(content[_FACTS_LENGTH.size : end])
        return Checkpoint(
            start_offset=facts["start_offset"],
            cleaned_offset=facts["cleaned_offset"],
            sparse_below=facts["sparse_below"],
            state_offset=facts["state_offset"],
            doubt=_doubt(facts),
            base=_base(facts["base"]),
            own=tuple([_own_entry(entry) for entry in facts["own"]]),
            segments=tuple([SegmentFacts(*segment) for segment in facts["segments"]]),
            state=content[end:],
        )
    except (struct.error, ValueError, KeyError, TypeError) as error:
        raise StorageDamaged(str(path), 0, f"the content makes no sense: {error}") from None


def _doubt(facts: dict[str, Any]) -> Doubt:
    if "doubt" in facts:
        if facts["doubt"] == _NO_DOUBT_FACTS:
            return NO_DOUBT
        return Doubt(*(LogEnd(*end) for end in facts["doubt"]))
    # Written before the end of a log was noted with its loss.
    return Doubt(lost=UNKNOWN_END) if facts["has_lost"] else NO_DOUBT


def _base(facts: list[Any]) -> LogBase:
    offset, index, term, membership, membership_index = facts
    return LogBase(offset, index, term, bytes.fromhex(membership), membership_index)


def _own_entry(facts: list[Any]) -> OwnEntry:
    index, term, offset, kind, payload = facts
    return OwnEntry(index, term, offset, OwnKind(kind), bytes.fromhex(payload))


def read_checkpoint(file_system: FileSystem, directory: Path) -> Checkpoint:
    """Raises StorageDamaged if it is missing: a partition has one from its first moment."""
    path = join(directory, CHECKPOINT)
    try:
        data = file_system.read(path)
    except (FileNotFoundError, NotADirectoryError):
        raise StorageDamaged(path, 0, "the file is missing") from None
    return decode_checkpoint(path, data)
