"""Which batches of a producer a partition takes, and what it makes of them first.

Everything that the header can tell is judged by the header alone. Records are looked at only when
the topic's settings ask for it: keys of a compacted topic, another codec than the producer's, or a
bound on how old a record may be.
"""

from penstock.model.errors import Reason, Refused
from penstock.model.limits import MIB
from penstock.model.topic_config import TimestampType, TopicConfig
from penstock.net.peer_connection import PEER_FRAME_BYTES_MAX
from penstock.records.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    LENGTH_OFFSET_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    MAGIC_POSITION,
    TRANSACTIONAL_BIT,
    BatchHeader,
    CorruptBatch,
    batch_payload,
    crc_matches,
    parse_header,
    seal,
)
from penstock.records.compression import Codec, compress
from penstock.records.raw_records import scan_records
from penstock.replication.keyless import keyless_records

_REFUSED_BITS = CONTROL_BIT | TRANSACTIONAL_BIT | LOG_APPEND_TIME_BIT
_CODECS = {
    "producer": None,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
_UNBOUNDED_MS = 2**63 - 1
# A batch may hold very many bad records; naming the first ones is enough to find the cause.
RECORD_ERRORS_MAX = 100
# Whatever a topic allows: a batch travels to followers in one frame, with what else is in there.
BATCH_BYTES_MAX = PEER_FRAME_BYTES_MAX - 16 * MIB

Batch = bytes | bytearray | memoryview


class RecordsRefused(Refused):
    """A batch that is refused because of some of its records, which it names by their index."""

    def __init__(self, reason: Reason, detail: str, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(reason, detail)
        self.record_errors = record_errors[:RECORD_ERRORS_MAX]


class Admission:
    """The rules of one topic, prepared once so that the hot path compares a few numbers."""

    __slots__ = (
        "_after_max_ms",
        "_before_max_ms",
        "_codec",
        "_needs_keys",
        "looks_inside",
        "size_max",
        "stamps_append_time",
    )

    def __init__(self, config: TopicConfig) -> None:
        self.size_max = min(config.max_message_bytes, BATCH_BYTES_MAX)
        self.stamps_append_time = config.timestamp_type is TimestampType.LOG_APPEND_TIME
        self._after_max_ms = _UNBOUNDED_MS
        self._before_max_ms = _UNBOUNDED_MS
        if not self.stamps_append_time:
            self._after_max_ms = config.timestamp_after_max_ms
            self._before_max_ms = config.timestamp_before_max_ms
        self._codec = _CODECS[config.compression_type]
        self._needs_keys = config.cleanup_compact
        self.looks_inside = (
            self._needs_keys or self._codec is not None or self._before_max_ms < _UNBOUNDED_MS
        )

    def check(self, header: BatchHeader, now_ms: int) -> None:
        """Refuses what the header alone shows to be wrong."""
        if header.attributes & _REFUSED_BITS:
            raise _refused_kind(header)
        if header.batch_length + LENGTH_OFFSET_OVERHEAD > self.size_max:
            raise too_large(header.size, self.size_max)
        if header.max_timestamp - now_ms > self._after_max_ms:
            raise Refused(
                Reason.INVALID_TIMESTAMP,
                f"the timestamp {header.max_timestamp} is more than {self._after_max_ms} ms ahead",
            )
        if header.producer_id >= 0 and header.base_sequence < 0:
            raise Refused(
                Reason.INVALID_RECORD,
                f"producer {header.producer_id} sent the sequence number {header.base_sequence}",
            )

    def look_inside(self, batch: Batch, header: BatchHeader, now_ms: int) -> Batch:
        """Judges the records themselves; returns the batch to store, compressed as asked for."""
        try:
            payload = batch_payload(batch, header)
            if self._needs_keys:
                _check_keys(payload, header)
            if self._before_max_ms < _UNBOUNDED_MS:
                self._check_ages(payload, header, now_ms)
        except CorruptBatch as bad:
            raise Refused(Reason.INVALID_RECORD, str(bad)) from None
        if self._codec is None or self._codec == header.codec:
            return batch
        attributes = header.attributes & ~CODEC_MASK | self._codec
        rewritten = seal(header._replace(attributes=attributes), compress(self._codec, payload))
        if len(rewritten) > self.size_max:
            raise too_large(len(rewritten), self.size_max)
        return rewritten

    def _check_ages(self, payload: bytes, header: BatchHeader, now_ms: int) -> None:
        oldest_ms = now_ms - self._before_max_ms
        errors = []
        for index, record in enumerate(scan_records(payload, header.record_count)):
            timestamp_ms = header.base_timestamp + record.timestamp_delta
            # -1 says that the record has no timestamp, which is never too old.
            if timestamp_ms < oldest_ms and timestamp_ms != -1:
                errors.append((index, f"the timestamp {timestamp_ms} is too old"))
        if errors:
            detail = f"records are more than {self._before_max_ms} ms old"
            raise RecordsRefused(Reason.INVALID_TIMESTAMP, detail, errors)


def _check_keys(payload: bytes, header: BatchHeader) -> None:
    keyless = keyless_records(payload, header.record_count)
    if keyless:
        what = "a compacted topic takes no record without a key"
        raise RecordsRefused(Reason.INVALID_RECORD, what, [(index, what) for index in keyless])


def refused_bytes(batches: Batch, bad: CorruptBatch) -> Refused:
    """Bytes damaged on the way may be sent again; a batch that was built wrong may not."""
    if len(batches) > MAGIC_POSITION and batches[MAGIC_POSITION] < MAGIC:
        return Refused(Reason.INVALID_RECORD, "the records are in an old message format")
    try:
        is_built_wrong = crc_matches(batches, 0, parse_header(batches))
    except CorruptBatch:
        is_built_wrong = False
    reason = Reason.INVALID_RECORD if is_built_wrong else Reason.CORRUPT_MESSAGE
    return Refused(reason, str(bad))


def _refused_kind(header: BatchHeader) -> Refused:
    if header.is_control:
        return Refused(Reason.INVALID_RECORD, "clients may not write control batches")
    if header.is_transactional:
        return Refused(Reason.TRANSACTIONAL_ID_REFUSED, "this broker has no transactions")
    return Refused(
        Reason.INVALID_TIMESTAMP, "a producer may not set the timestamp type LogAppendTime"
    )


def too_large(size: int, size_max: int) -> Refused:
    return Refused(
        Reason.MESSAGE_TOO_LARGE, f"the batch takes {size} bytes, at most {size_max} are allowed"
    )
