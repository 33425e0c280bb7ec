"""Codecs: the frames of other writers are read, ours are read by others, and bombs are refused."""

import gzip
from io import BytesIO

import cramjam
import lz4.frame
import pytest
import zstandard

from penstock.records.compression import Codec, compress, decompress
from penstock.records.errors import CorruptBatch

DATA = b"the quick brown fox " * 5000
PACKED = [codec for codec in Codec if codec is not Codec.NONE]


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("data", [b"", b"x", DATA, memoryview(bytearray(DATA))])
def test_round_trip(codec: Codec, data: bytes) -> None:
    assert decompress(codec, compress(codec, data)) == bytes(data)


@pytest.mark.parametrize("codec", PACKED)
def test_a_bomb_is_refused_at_the_bound(codec: Codec) -> None:
    packed = compress(codec, bytes(1_000_000))
    assert len(decompress(codec, packed, 1_000_000)) == 1_000_000
    with pytest.raises(CorruptBatch):
        decompress(codec, packed, 999_999)


@pytest.mark.parametrize("codec", PACKED)
@pytest.mark.parametrize("cut", [1, 5, 20])
def test_cut_data_is_refused(codec: Codec, cut: int) -> None:
    with pytest.raises(CorruptBatch):
        decompress(codec, compress(codec, DATA)[:-cut])


@pytest.mark.parametrize("codec", PACKED)
def test_noise_is_refused(codec: Codec) -> None:
    with pytest.raises(CorruptBatch):
        decompress(codec, bytes(range(1, 200)))


def test_gzip_of_several_members() -> None:
    packed = gzip.compress(b"one, ") + gzip.compress(b"two")
    assert decompress(Codec.GZIP, packed) == b"one, two"
    with pytest.raises(CorruptBatch):
        decompress(Codec.GZIP, packed, 7)


def test_gzip_of_nothing_but_members() -> None:
    bomb = gzip.compress(b"") * 100
    assert decompress(Codec.GZIP, bomb, 0) == b""


def test_raw_snappy_is_read() -> None:
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(DATA))) == DATA


def test_snappy_is_written_in_blocks_of_the_java_framing() -> None:
    packed = compress(Codec.SNAPPY, DATA)
    assert packed.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    first = int.from_bytes(packed[16:20], "big")
    assert cramjam.snappy.decompress_raw_len(packed[20 : 20 + first]) == 32 * 1024


def test_snappy_block_that_lies_about_its_length_is_refused() -> None:
    packed = bytearray(compress(Codec.SNAPPY, DATA))
    packed[16:20] = (2**31).to_bytes(4, "big")
    with pytest.raises(CorruptBatch, match="past the end"):
        decompress(Codec.SNAPPY, packed)


@pytest.mark.parametrize("content_size", [True, False])
@pytest.mark.parametrize("linked", [True, False])
@pytest.mark.parametrize("checksum", [True, False])
def test_lz4_frames_of_every_kind(content_size: bool, linked: bool, checksum: bool) -> None:
    packed = lz4.frame.compress(
        DATA,
        store_size=content_size,
        block_linked=linked,
        content_checksum=checksum,
        block_checksum=checksum,
    )
    assert decompress(Codec.LZ4, packed) == DATA


def test_zstd_stream_without_content_size() -> None:
    out = BytesIO()
    with zstandard.ZstdCompressor(write_content_size=False).stream_writer(out, closefd=False) as to:
        to.write(DATA[:50_000])
        to.flush()
        to.write(DATA[50_000:])
    assert decompress(Codec.ZSTD, out.getvalue()) == DATA


def test_what_we_pack_others_unpack() -> None:
    assert gzip.decompress(compress(Codec.GZIP, DATA)) == DATA
    assert lz4.frame.decompress(compress(Codec.LZ4, DATA)) == DATA
    assert zstandard.ZstdDecompressor().decompress(compress(Codec.ZSTD, DATA)) == DATA


def test_lz4_blocks_stand_alone() -> None:
    """Kafka's Java client refuses a frame whose blocks refer to earlier ones."""
    packed = compress(Codec.LZ4, DATA)
    assert lz4.frame.get_frame_info(packed)["block_linked"] is False
