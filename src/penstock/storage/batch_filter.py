"""Compaction of one batch: which records stay, and the batch that holds only those."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from penstock.records.batch import (
    CODEC_MASK,
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME_BIT,
    BatchHeader,
    CorruptBatch,
    batch_payload,
    scan_batch,
    seal,
)
from penstock.records.compression import compress
from penstock.records.raw_records import RawRecord, append_shifted
from penstock.storage.file_system import Bytes

# Offset, key, and whether the value is null.
Retain: TypeAlias = Callable[[int, RawRecord], bool]

_NO_TIMESTAMP = -1


@dataclass(frozen=True, slots=True)
class Filtered:
    """The batch as it stays (None: not at all), and how many of its records went."""

    batch: Bytes | None
    dropped: int = 0


def decode_raw(batch: Bytes, header: BatchHeader) -> tuple[bytes, list[RawRecord]] | None:
    """The records as they lie in the batch; None if there is nothing that compaction may judge.

    Markers are kept for those who read them. A batch that can't be decoded is kept because its
    producer's bytes are not ours to lose.
    """
    if header.is_control:
        return None
    try:
        payload = batch_payload(batch, header)
        return payload, list(scan_batch(payload, header))
    except CorruptBatch:
        return None


def filter_batch(
    batch: Bytes,
    header: BatchHeader,
    *,
    retain: Retain,
    keep_empty: Callable[[BatchHeader], bool],
    horizon_ms: int | None,
) -> Filtered:
    """Drops records that `retain` does not want.

    `horizon_ms` is when tombstones may go that are met for the first time; None leaves them
    unmarked. It becomes the batch's base timestamp (KIP-534).
    """
    decoded = decode_raw(batch, header)
    if decoded is None:
        return Filtered(batch)
    payload, records = decoded
    kept = [raw for raw in records if retain(header.base_offset + raw.offset_delta, raw)]
    dropped = len(records) - len(kept)
    if not kept:
        return Filtered(_emptied(header) if keep_empty(header) else None, dropped)
    must_mark = (
        horizon_ms is not None
        and header.delete_horizon_ms is None
        and any(raw.is_tombstone for raw in kept)
    )
    if not dropped and not must_mark:
        return Filtered(batch)
    base_timestamp = horizon_ms if must_mark and horizon_ms is not None else header.base_timestamp
    return Filtered(_rebuilt(header, payload, kept, base_timestamp, must_mark=must_mark), dropped)


def _emptied(header: BatchHeader) -> bytes:
    """The batch without records: it still carries its producer's sequence and its offsets."""
    return seal(
        header._replace(
            attributes=header.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT),
            base_timestamp=_NO_TIMESTAMP,
            record_count=0,
        ),
        b"",
    )


def _rebuilt(
    header: BatchHeader,
    payload: bytes,
    kept: list[RawRecord],
    base_timestamp: int,
    *,
    must_mark: bool,
) -> bytes:
    shift = header.base_timestamp - base_timestamp
    out = bytearray()
    for raw in kept:
        if shift:
            append_shifted(out, payload, raw, raw.timestamp_delta + shift)
        else:
            out += payload[raw.start : raw.end]
    max_timestamp = header.max_timestamp
    if not header.attributes & LOG_APPEND_TIME_BIT:
        max_timestamp = header.base_timestamp + max(raw.timestamp_delta for raw in kept)
    changed = header._replace(
        attributes=header.attributes | (DELETE_HORIZON_BIT if must_mark else 0),
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        record_count=len(kept),
    )
    return seal(changed, compress(header.codec, out))
