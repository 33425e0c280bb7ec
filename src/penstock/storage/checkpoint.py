"""What is known to be safe about a partition: the file that recovery starts from.

It is written anew, atomically, whenever a segment was rolled, removed or compacted, or enough was
written. Everything it names lies on disk for good: what differs from it later is damage.
"""

import json
import struct
from pathlib import Path
from typing import NamedTuple

from penstock.model.errors import StorageDamaged
from penstock.storage.checksummed import unwrap, wrap
from penstock.storage.file_system import FileSystem
from penstock.storage.layout import CHECKPOINT
from penstock.storage.segment import SegmentFacts

_MAGIC = b"PNCP"
_VERSION = 1
_FACTS_LENGTH = struct.Struct(">I")


class Checkpoint(NamedTuple):
    start_offset: int = 0
    # In order; the last one may have grown since. The flush mark is the end of the last one.
    segments: tuple[SegmentFacts, ...] = ()
    epochs: tuple[tuple[int, int], ...] = ()
    # Compaction has seen everything before this offset.
    cleaned_offset: int = 0
    # Only before this offset may records be missing between batches.
    sparse_below: int = 0
    # The owner's state, opaque here, after it has applied everything before `state_offset`.
    state: bytes = b""
    state_offset: int = 0

    @property
    def flushed_offset(self) -> int:
        return self.segments[-1].next_offset if self.segments else self.start_offset

    def encode(self) -> bytes:
        facts = {
            "start_offset": self.start_offset,
            "cleaned_offset": self.cleaned_offset,
            "sparse_below": self.sparse_below,
            "state_offset": self.state_offset,
            "epochs": self.epochs,
            "segments": self.segments,
        }
        text = json.dumps(facts, separators=(",", ":")).encode()
        return wrap(_MAGIC, _VERSION, _FACTS_LENGTH.pack(len(text)) + text + self.state)


def decode_checkpoint(path: Path, data: bytes) -> Checkpoint:
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
            epochs=tuple((term, offset) for term, offset in facts["epochs"]),
            segments=tuple(SegmentFacts(*segment) for segment in facts["segments"]),
            state=content[end:],
        )
    except (struct.error, ValueError, KeyError, TypeError) as error:
        raise StorageDamaged(str(path), 0, f"the content makes no sense: {error}") from None


def read_checkpoint(file_system: FileSystem, directory: Path) -> Checkpoint:
    """Raises StorageDamaged if it is missing: a partition has one from its first moment."""
    path = directory / CHECKPOINT
    try:
        data = file_system.read(path)
    except (FileNotFoundError, NotADirectoryError):
        raise StorageDamaged(str(path), 0, "the file is missing") from None
    return decode_checkpoint(path, data)
