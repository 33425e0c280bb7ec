"""Proves that every option of a write arrives as what it means, with the Java client's defaults."""

import pickle

import pytest

from penstock.records.compression import Codec
from penstock.spark.options.errors import OptionError
from penstock.spark.options.writing import ACKS_ALL, write_options
from tests.unit.spark.options.samples import write_with


def test_defaults() -> None:
    options = write_with({})
    assert options.topic is None
    assert options.include_timestamp is False
    assert options.acks == ACKS_ALL
    assert options.idempotent is True
    assert options.codec is Codec.NONE
    assert options.codec_level is None
    assert options.batch_bytes_max == 512 * 1024
    assert options.bytes_in_flight_max == 32 * 1024 * 1024
    assert options.ignore_keys is False
    assert options.notes == ()


def test_options_travel_by_pickle() -> None:
    options = write_with({"topic": "orders", "kafka.compression.type": "zstd"})
    assert pickle.loads(pickle.dumps(options)) == options


def test_the_topic_is_trimmed() -> None:
    assert write_with({"topic": " orders "}).topic == "orders"


@pytest.mark.parametrize("topic", ["", "or ders", "a@b", "x" * 250, ".", "..", "orders,clicks"])
def test_what_can_be_no_topic_is_refused(topic: str) -> None:
    with pytest.raises(OptionError, match=r"^The option topic "):
        write_with({"topic": topic})


def test_a_timestamp_column_is_asked_for() -> None:
    assert write_with({"includeTimestamp": "true"}).include_timestamp is True


def test_headers_need_no_option() -> None:
    assert write_with({"includeHeaders": "true"}).notes == ()


@pytest.mark.parametrize(("text", "acks"), [("all", -1), ("-1", -1), ("ALL", -1)])
def test_acknowledgements_by_all_keep_idempotence(text: str, acks: int) -> None:
    options = write_with({"kafka.acks": text})
    assert (options.acks, options.idempotent) == (acks, True)


@pytest.mark.parametrize("text", ["0", "1"])
def test_fewer_acknowledgements_switch_idempotence_off(text: str) -> None:
    options = write_with({"kafka.acks": text})
    assert (options.acks, options.idempotent) == (int(text), False)
    with pytest.raises(OptionError, match=f"enable.idempotence needs .* all, not {text}"):
        write_with({"kafka.acks": text, "kafka.enable.idempotence": "true"})


def test_idempotence_can_be_switched_off() -> None:
    options = write_with({"kafka.enable.idempotence": "false"})
    assert (options.acks, options.idempotent) == (ACKS_ALL, False)


def test_another_number_of_acknowledgements_is_refused() -> None:
    with pytest.raises(OptionError, match='must be all, -1, 0 or 1, not "2"'):
        write_with({"kafka.acks": "2"})


@pytest.mark.parametrize("codec", list(Codec))
def test_codecs(codec: Codec) -> None:
    assert write_with({"kafka.compression.type": codec.name.lower()}).codec is codec


def test_an_unknown_codec_is_refused() -> None:
    with pytest.raises(OptionError, match='must be none, gzip, snappy, lz4 or zstd, not "brotli"'):
        write_with({"kafka.compression.type": "brotli"})


@pytest.mark.parametrize(
    ("codec", "text", "level"),
    [("gzip", "9", 9), ("gzip", "-1", None), ("lz4", "17", 17), ("zstd", "-5", -5)],
)
def test_levels(codec: str, text: str, level: int | None) -> None:
    name = f"kafka.compression.{codec}.level"
    assert write_with({"kafka.compression.type": codec, name: text}).codec_level == level
    # The level of a codec that is not in use says nothing.
    assert write_with({"kafka.compression.type": "snappy", name: text}).codec_level is None


@pytest.mark.parametrize(("codec", "text"), [("gzip", "10"), ("lz4", "0"), ("zstd", "23")])
def test_levels_out_of_range_are_refused(codec: str, text: str) -> None:
    with pytest.raises(OptionError, match=f"kafka.compression.{codec}.level must be a whole"):
        write_with({"kafka.compression.type": codec, f"kafka.compression.{codec}.level": text})


@pytest.mark.parametrize(
    ("options", "size"),
    [
        ({"kafka.batch.size": "16384"}, 16384),
        ({"kafka.batch.size": "0"}, 1),
        ({"kafka.batch.size": "900000"}, 900000),
        ({"kafka.batch.size": "9000000"}, 1024 * 1024),
        ({"kafka.batch.size": "9000000", "kafka.max.request.size": "10000000"}, 9000000),
        ({"kafka.max.request.size": "1000"}, 1000),
    ],
)
def test_batches_are_as_large_as_a_request_at_most(options: dict[str, str], size: int) -> None:
    assert write_with(options).batch_bytes_max == size


def test_memory_for_what_is_in_flight() -> None:
    assert write_with({"kafka.buffer.memory": "1000000"}).bytes_in_flight_max == 1000000


def test_keys_can_be_ignored() -> None:
    assert write_with({"kafka.partitioner.ignore.keys": "true"}).ignore_keys is True


def test_a_partitioner_of_ones_own_is_refused() -> None:
    with pytest.raises(OptionError, match=r'partitioner\.class names "org\.me\.Mine", but Java'):
        write_with({"kafka.partitioner.class": "org.me.Mine"})
    default = "org.apache.kafka.clients.producer.internals.DefaultPartitioner"
    assert write_with({"kafka.partitioner.class": default}).notes == ()


def test_lingering_has_no_effect() -> None:
    (note,) = write_with({"kafka.linger.ms": "50"}).notes
    assert note == "The setting kafka.linger.ms has no effect here."


def test_a_broker_must_be_named() -> None:
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers must be set"):
        write_options({"topic": "orders"}, streaming=True)
