"""Any bytes give rows or CorruptBatch, and both makes of kernels agree about which.

Damage lies behind right checksums, so that it reaches the kernels.
"""

import gc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.columns import numba_reading, numpy_reading
from penstock.columns.payloads import Scratch
from penstock.columns.tables import NO_TIMESTAMP, TIMESTAMP_MS_MAX, Batches, Rows, empty_rows
from penstock.records.batch import build_batch, decode_records
from penstock.records.compression import Codec, compress
from penstock.records.errors import CorruptBatch
from penstock.records.record import Record
from tests.unit.columns.hostile import hostile_payload
from tests.unit.columns.makes import MAKES, RECORDS, batch_of, decode, payload_of, rows

_COLUMNS = ("key", "value", "offset", "timestamp", "headers")
_EXAMPLES = settings(max_examples=300, deadline=None)


def _outcome(make: str, answer: bytes) -> object:
    try:
        return decode(make, answer, columns=_COLUMNS)
    except CorruptBatch as error:
        return str(error)


@given(answer=st.binary(max_size=300))
@_EXAMPLES
def test_noise_gives_the_same_from_both(answer: bytes) -> None:
    assert _outcome("numpy", answer) == _outcome("numba", answer)


@given(
    payload=st.binary(max_size=200),
    count=st.integers(0, 40),
    codec=st.sampled_from(Codec),
    delta=st.integers(0, 50),
)
@_EXAMPLES
def test_noise_for_records_gives_the_same_from_both(
    payload: bytes, count: int, codec: Codec, delta: int
) -> None:
    answer = batch_of(payload, count=count, codec=codec, last_offset_delta=delta)
    assert _outcome("numpy", answer) == _outcome("numba", answer)


@given(
    records=st.lists(RECORDS, min_size=1, max_size=6),
    damage=st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), max_size=3),
    cut=st.integers(-3, 0),
)
@_EXAMPLES
def test_damaged_records_give_what_the_plain_decoder_gives(
    records: list[Record], damage: list[tuple[int, int]], cut: int
) -> None:
    payload = bytearray(payload_of(records))
    for position, byte in damage:
        payload[position % len(payload)] = byte
    _check_against_plain_decoder(bytes(payload[: len(payload) + cut]), len(records))


def test_hostile_records_give_what_the_plain_decoder_gives() -> None:
    for seed in range(1000):
        try:
            _check_against_plain_decoder(*hostile_payload(seed))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}") from error


def _check_against_plain_decoder(payload: bytes, count: int) -> None:
    answer = batch_of(payload, count=count)
    compiled = _outcome("numba", answer)
    assert compiled == _outcome("numpy", answer)
    expected = _plain_outcome(answer, count)
    if expected is None:
        return
    if isinstance(expected, str):
        assert isinstance(compiled, str)
        return
    assert isinstance(compiled, list)
    found = [(row["key"], row["value"], row["offset"]) for row in _plain(compiled)]
    assert found == [(record.key, record.value, record.offset) for record in expected]


def _plain_outcome(answer: bytes, count: int) -> list[Record] | str | None:
    """The records, or what is wrong with them; None where the two decoders are meant to differ."""
    try:
        expected = list(decode_records(answer))
    except CorruptBatch as error:
        # Names of headers that are not text are replaced, and times that no column holds are null:
        # anyone who reads a log wants its records, also where a broker let such a thing pass once.
        is_meant = any(text in str(error) for text in ("not UTF-8", "longer than 64 bits"))
        return None if is_meant else str(error)
    if any(not 0 <= record.offset < max(1, count) for record in expected):
        return "an offset outside of the batch"
    return expected


def _plain(batches: list[object]) -> list[dict[str, object]]:
    # Timestamps may lie beyond what Python's own type holds.
    return rows(batch.select(["key", "value", "offset"]) for batch in batches)  # type: ignore[attr-defined]


@pytest.mark.parametrize("kernels", [numpy_reading, numba_reading], ids=MAKES)
@pytest.mark.parametrize("seed", range(0, 400, 100))
def test_kernels_stay_inside_their_arrays(kernels: object, seed: int) -> None:
    for each in range(seed, seed + 100):
        payload, count = hostile_payload(each)
        for size in range(max(1, len(payload) - 3), len(payload) + 1):
            _check_margins(kernels, payload[:size], [count + 1, 1])


def _check_margins(kernels: object, payload: bytes, counts: list[int]) -> None:
    """Around each array lies a margin that must not matter, and must stay as it is."""
    outcomes = []
    for filling in (0x00, 0xFF, 0x02):
        margin = bytes([filling]) * 64
        source = np.frombuffer(margin + payload + margin, np.uint8)[64 : 64 + len(payload)]
        batches = _batches(len(payload), counts)
        table = np.full((len(Rows._fields), 64 + sum(counts) + 64), 7, np.int64)
        inner = Rows(*(field[64 : 64 + sum(counts)] for field in table))
        outcomes.append(kernels.scan(source, batches, 0, 2**62, inner))  # type: ignore[attr-defined]
        assert (table[:, :64] == 7).all()
        assert (table[:, 64 + sum(counts) :] == 7).all()
    assert len(set(outcomes)) == 1


def _batches(size: int, counts: list[int]) -> Batches:
    same = np.zeros(len(counts), np.int64)
    ends = np.full(len(counts), size)
    return Batches(
        same, ends, np.array(counts), same, np.array(counts) - 1, same, same.copy(), same.copy()
    )


@pytest.mark.parametrize("make", MAKES)
def test_a_count_that_the_bytes_cannot_hold_allocates_nothing(make: str) -> None:
    answer = batch_of(b"\x00" * 100, count=2**31 - 1)
    with pytest.raises(CorruptBatch, match="don't fit into 100 bytes"):
        decode(make, answer)


@pytest.mark.parametrize("make", MAKES)
def test_a_record_may_be_full_of_headers(make: str) -> None:
    headers = tuple((f"{at}", None if at % 3 else b"x" * (at % 5)) for at in range(20_000))
    records = [Record(headers=headers[:count]) for count in (0, 20_000, 15, 16, 17, 1)]
    found = rows(decode(make, build_batch(records), columns=("headers",)))
    for row, record in zip(found, records, strict=True):
        names = [(header["key"], header["value"]) for header in row["headers"] or ()]
        assert names == list(record.headers)


@pytest.mark.parametrize("make", MAKES)
def test_a_record_full_of_headers_may_be_damaged_late(make: str) -> None:
    payload = bytearray(payload_of([Record(headers=(("a", b"b"),) * 100)]))
    # The length of a name far behind: it reaches past the end of the record.
    payload[-40] = 0x7E
    with pytest.raises(CorruptBatch, match="malformed"):
        decode(make, batch_of(bytes(payload), count=1))


@pytest.mark.parametrize("make", MAKES)
def test_the_sentence_names_topic_partition_and_offset(make: str) -> None:
    good = build_batch([Record(value=b"v")], base_offset=41)
    with pytest.raises(CorruptBatch) as caught:
        decode(make, good + good[:-1] + b"w")
    assert str(caught.value) == (
        "The batch at offset 41 of partition 3 of topic orders is corrupt: "
        "the checksum does not match."
    )
    with pytest.raises(CorruptBatch, match=r"topic orders is corrupt: its records are malformed\."):
        decode(make, batch_of(b"\x01" * 20, count=2))
    with pytest.raises(CorruptBatch, match="are left"):
        decode(make, good[:-1])


def test_nothing_that_was_fetched_is_kept() -> None:
    answer = bytearray(build_batch([Record(value=b"v" * 1000)] * 10))
    found = decode("numba", bytes(answer)[:0])
    assert not found
    batches = decode("numba", answer)  # type: ignore[arg-type]
    gc.collect()
    # A bytearray refuses to change its size while anybody looks into it.
    answer.clear()
    assert sum(batch.num_rows for batch in batches) == 10


def test_constants_of_compiled_kernels_are_those_of_the_tables() -> None:
    assert numba_reading._NO_TIMESTAMP == NO_TIMESTAMP
    assert numba_reading._TIMESTAMP_MS_MAX == TIMESTAMP_MS_MAX
    assert len(empty_rows(3).offset) == 3


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
def test_what_unpacks_to_too_much_is_not_called_damaged(
    codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.columns.payloads.DECOMPRESSED_BYTES_MAX", 1 << 20)
    packed = memoryview(compress(codec, bytes(2 << 20)))
    with pytest.raises(CorruptBatch, match="decompress to more than 1048576 bytes"):
        Scratch().add(codec, packed)
