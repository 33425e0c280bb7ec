"""What time does to a disk, done to the files of a node that does not run."""

from pathlib import Path

from penstock.records.batch import parse_header
from penstock.storage.hard_state_blocks import MARK, PAGE_BYTES

# Where a copy of a block says which block it is.
_NUMBER = slice(len(MARK) + 1, len(MARK) + 9)


def without_last_votes(data: bytes) -> bytes:
    """A file of terms and votes with one bad bit in each copy of its last block."""
    pages = range(0, len(data), PAGE_BYTES)
    numbers = {page: data[page:][_NUMBER] for page in pages if data.startswith(MARK, page)}
    last = max(numbers.values())
    changed = bytearray(data)
    for page, number in numbers.items():
        if number == last:
            changed[page + _NUMBER.stop] ^= 1
    return bytes(changed)


def lose_last_votes(data_directory: Path) -> None:
    file = data_directory / "hard_states"
    file.write_bytes(without_last_votes(file.read_bytes()))


def misplace_batch(segment: Path, number: int = -1) -> None:
    """One of its clients' batches has another base offset, which no checksum covers."""
    data = bytearray(segment.read_bytes())
    positions, position = [], 0
    while position < len(data):
        header = parse_header(data, position)
        if not header.is_own:
            positions.append(position)
        position += header.size
    data[positions[number] + 7] ^= 1
    segment.write_bytes(data)
