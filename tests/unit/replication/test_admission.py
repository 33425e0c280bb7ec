"""Proves which batches a topic's settings let in, and what is stored of them."""

import pytest

from penstock.model.errors import Reason, Refused
from penstock.model.topic_config import TimestampType, TopicConfig
from penstock.net.peer_connection import PEER_FRAME_BYTES_MAX
from penstock.raft.settings import RaftSettings
from penstock.records.batch import (
    LENGTH_OFFSET_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
    CorruptBatch,
    build_batch,
    check_batch,
    decode_records,
    parse_header,
    seal,
)
from penstock.records.compression import Codec
from penstock.records.record import Record
from penstock.replication.admission import (
    BATCH_BYTES_MAX,
    Admission,
    RecordsRefused,
    refused_bytes,
)
from penstock.replication.exchange import FRAME_BYTES_TARGET

NOW_MS = 1_700_000_000_000


def batch_of(*keys: bytes | None, timestamp_ms: int = NOW_MS, **options: object) -> bytes:
    records = [Record(timestamp_ms=timestamp_ms, key=key, value=b"v") for key in keys]
    return build_batch(records, **options)  # type: ignore[arg-type]


def admit(config: TopicConfig, batch: bytes) -> bytes:
    admission = Admission(config)
    header = check_batch(batch)
    admission.check(header, NOW_MS)
    if admission.looks_inside:
        return bytes(admission.look_inside(batch, header, NOW_MS))
    return batch


def refusal(config: TopicConfig, batch: bytes) -> Refused:
    with pytest.raises(Refused) as caught:
        admit(config, batch)
    return caught.value


def with_attributes(batch: bytes, bits: int) -> bytes:
    header = parse_header(batch)
    return seal(header._replace(attributes=header.attributes | bits), batch[61:])


def test_a_plain_batch_is_taken_without_a_look_inside() -> None:
    assert not Admission(TopicConfig()).looks_inside
    batch = batch_of(None)
    assert admit(TopicConfig(), batch) is batch


def test_a_batch_larger_than_the_topic_allows_is_refused() -> None:
    batch = batch_of(b"k")
    config = TopicConfig(max_message_bytes=len(batch) - 1)
    assert refusal(config, batch).reason is Reason.MESSAGE_TOO_LARGE
    assert admit(TopicConfig(max_message_bytes=len(batch)), batch) is batch


def test_a_batch_that_no_follower_could_be_sent_is_refused_whatever_the_topic_allows() -> None:
    header = parse_header(batch_of(b"k"))
    admission = Admission(TopicConfig(max_message_bytes=2**31 - 1))
    largest = header._replace(batch_length=BATCH_BYTES_MAX - LENGTH_OFFSET_OVERHEAD)
    admission.check(largest, NOW_MS)
    with pytest.raises(Refused) as caught:
        admission.check(largest._replace(batch_length=largest.batch_length + 1), NOW_MS)
    assert caught.value.reason is Reason.MESSAGE_TOO_LARGE
    # Beside it there may be what the frame held before, and one more message.
    around = FRAME_BYTES_TARGET + RaftSettings().append_bytes_max
    assert BATCH_BYTES_MAX + around < PEER_FRAME_BYTES_MAX


def test_what_only_the_broker_may_write_is_refused() -> None:
    control = batch_of(b"k", is_control=True)
    assert refusal(TopicConfig(), control).reason is Reason.INVALID_RECORD
    transactional = with_attributes(batch_of(b"k"), TRANSACTIONAL_BIT)
    assert refusal(TopicConfig(), transactional).reason is Reason.TRANSACTIONAL_ID_REFUSED
    stamped = with_attributes(batch_of(b"k"), LOG_APPEND_TIME_BIT)
    assert refusal(TopicConfig(), stamped).reason is Reason.INVALID_TIMESTAMP


def test_a_producer_id_needs_a_sequence_number() -> None:
    batch = batch_of(b"k", producer_id=5, producer_epoch=0)
    assert refusal(TopicConfig(), batch).reason is Reason.INVALID_RECORD


def test_timestamps_are_held_to_the_bounds_of_the_topic() -> None:
    config = TopicConfig(timestamp_before_max_ms=1_000, timestamp_after_max_ms=2_000)
    assert refusal(config, batch_of(b"k", timestamp_ms=NOW_MS + 2_001)).reason is (
        Reason.INVALID_TIMESTAMP
    )
    old = refusal(config, batch_of(b"k", timestamp_ms=NOW_MS - 1_001))
    assert old.reason is Reason.INVALID_TIMESTAMP
    assert isinstance(old, RecordsRefused)
    for timestamp_ms in (NOW_MS + 2_000, NOW_MS - 1_000, -1):
        admit(config, batch_of(b"k", timestamp_ms=timestamp_ms))


def test_append_time_topics_ignore_the_timestamps_of_producers() -> None:
    config = TopicConfig(
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        timestamp_before_max_ms=1,
        timestamp_after_max_ms=1,
    )
    admit(config, batch_of(b"k", timestamp_ms=NOW_MS * 2))


@pytest.mark.parametrize("codec", list(Codec))
def test_a_compacted_topic_names_the_records_without_a_key(codec: Codec) -> None:
    config = TopicConfig(cleanup_compact=True)
    refused = refusal(config, batch_of(b"a", None, b"b", None, codec=codec))
    assert refused.reason is Reason.INVALID_RECORD
    assert isinstance(refused, RecordsRefused)
    assert [index for index, _ in refused.record_errors] == [1, 3]
    admit(config, batch_of(b"a", b"", codec=codec))


@pytest.mark.parametrize(
    ("name", "codec"),
    [
        ("uncompressed", Codec.NONE),
        ("gzip", Codec.GZIP),
        ("snappy", Codec.SNAPPY),
        ("lz4", Codec.LZ4),
        ("zstd", Codec.ZSTD),
    ],
)
def test_the_codec_of_the_topic_wins_over_the_producer(name: str, codec: Codec) -> None:
    for sent in Codec:
        batch = batch_of(b"a", b"b", codec=sent, producer_id=3, producer_epoch=1, base_sequence=9)
        stored = admit(TopicConfig(compression_type=name), batch)
        header = check_batch(stored)
        assert header.codec is codec
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (3, 1, 9)
        assert list(decode_records(stored)) == list(decode_records(batch))


def test_bad_records_inside_a_sound_batch_are_invalid() -> None:
    header = parse_header(batch_of(b"k"))
    batch = seal(header, b"\x80\x80nonsense")
    assert refusal(TopicConfig(cleanup_compact=True), batch).reason is Reason.INVALID_RECORD


def test_damage_on_the_way_may_be_retried_but_a_wrong_build_may_not() -> None:
    batch = bytearray(batch_of(b"k"))
    batch[-1] ^= 1
    with pytest.raises(CorruptBatch) as damaged:
        check_batch(batch)
    assert refused_bytes(batch, damaged.value).reason is Reason.CORRUPT_MESSAGE
    header = parse_header(batch_of(b"k"))
    wrong = seal(header._replace(record_count=2), batch_of(b"k")[61:])
    with pytest.raises(CorruptBatch) as built:
        check_batch(wrong)
    assert refused_bytes(wrong, built.value).reason is Reason.INVALID_RECORD


def test_an_old_message_format_in_place_of_a_batch_is_invalid() -> None:
    batch = bytearray(batch_of(b"k"))
    batch[16] = 1
    with pytest.raises(CorruptBatch) as old:
        check_batch(batch)
    assert refused_bytes(batch, old.value).reason is Reason.INVALID_RECORD


def test_an_uncompressed_topic_unpacks_without_looking_at_records() -> None:
    stored = admit(TopicConfig(compression_type="uncompressed"), batch_of(None, codec=Codec.ZSTD))
    assert [record.key for record in decode_records(stored)] == [None]
