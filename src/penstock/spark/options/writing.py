"""The options of a write, in batch and in stream, with the meaning of Spark's Kafka sink."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.client.wire.settings import WireSettings
from penstock.records.compression import Codec
from penstock.spark.options.errors import OptionError
from penstock.spark.options.given import INT_MAX, Given, shown
from penstock.spark.options.kafka_settings import WRITING, check_kafka_settings, wire_settings
from penstock.spark.options.misspelt import READ_OPTIONS, WRITE_OPTIONS, check_names
from penstock.spark.options.tracing import traced

ACKS_ALL = -1

# The Java client's 16 KB suit a producer that sends record by record; anyone who has whole Arrow
# batches at hand fills larger ones, which compress better and cost fewer requests.
_BATCH_BYTES = 512 * 1024
# The Java client's own default, and about what a topic takes unless it is told otherwise.
_REQUEST_BYTES_MAX = 1024 * 1024
_IN_FLIGHT_BYTES_MAX = 32 * 1024 * 1024

_CODECS = {codec.name.lower(): codec for codec in Codec}
_LEVELS = {
    Codec.GZIP: ("kafka.compression.gzip.level", 1, 9),
    Codec.LZ4: ("kafka.compression.lz4.level", 1, 17),
    Codec.ZSTD: ("kafka.compression.zstd.level", -131072, 22),
}
_GZIP_LEVEL_DEFAULT = "-1"
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
# The one class whose choice of partitions is ours too.
_PARTITIONER = "org.apache.kafka.clients.producer.internals.DefaultPartitioner"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Everything a query writes by; plain values, so that a writer can be pickled with it."""

    wire: WireSettings
    # The topic of every row, whatever its column says; None leaves it to the column.
    topic: str | None
    # Whether a column named timestamp gives the records theirs.
    include_timestamp: bool
    acks: int
    idempotent: bool
    codec: Codec
    codec_level: int | None
    # A single record may be larger: it gets a batch of its own, which is the broker's to judge.
    batch_bytes_max: int
    bytes_in_flight_max: int
    # Whether rows with a key choose their partition as if they had none.
    ignore_keys: bool
    # Whether tasks send spans to an OpenTelemetry collector.
    is_traced: bool
    # What has no effect, each a sentence, to be logged once when the query is made.
    notes: tuple[str, ...]


def write_options(options: Mapping[str, str], *, streaming: bool) -> WriteOptions:
    """The options checked and typed; raises OptionError with one sentence."""
    given = Given.of(options)
    check_names(given)
    without_effect = check_kafka_settings(given, WRITING)
    _check_partitioner(given)
    acks = _acks(given)
    codec = _CODECS[given.one_of("kafka.compression.type", tuple(_CODECS), "none")]
    request_bytes_max = _size(given, "kafka.max.request.size", _REQUEST_BYTES_MAX)
    return WriteOptions(
        wire=wire_settings(given, WRITING),
        topic=_topic(given),
        include_timestamp=given.flag("includeTimestamp", False),
        acks=acks,
        idempotent=_idempotent(given, acks),
        codec=codec,
        codec_level=_codec_level(given, codec),
        batch_bytes_max=min(_size(given, "kafka.batch.size", _BATCH_BYTES), request_bytes_max),
        bytes_in_flight_max=_size(given, "kafka.buffer.memory", _IN_FLIGHT_BYTES_MAX),
        ignore_keys=given.flag("kafka.partitioner.ignore.keys", False),
        is_traced=traced(given),
        notes=_notes(given, without_effect),
    )


def _topic(given: Given) -> str | None:
    topic = given.text_filled("topic")
    if topic is not None and (not _TOPIC_NAME.fullmatch(topic) or topic in (".", "..")):
        raise OptionError(
            f"The option topic must be a name of at most 249 letters, digits, dots, underscores "
            f"and hyphens, not {shown(topic)}."
        )
    return topic


def _acks(given: Given) -> int:
    word = given.one_of("kafka.acks", ("all", "-1", "0", "1"), "all")
    return ACKS_ALL if word == "all" else int(word)


def _idempotent(given: Given, acks: int) -> bool:
    """On unless acknowledgements are loosened, as in the Java client; both at once are refused."""
    idempotent = given.flag("kafka.enable.idempotence", acks == ACKS_ALL)
    if idempotent and acks != ACKS_ALL:
        raise OptionError(
            f"The setting kafka.enable.idempotence needs kafka.acks to be all, not {acks}."
        )
    return idempotent


def _codec_level(given: Given, codec: Codec) -> int | None:
    if codec not in _LEVELS:
        return None
    name, least, most = _LEVELS[codec]
    if codec is Codec.GZIP and given.text(name) == _GZIP_LEVEL_DEFAULT:
        return None
    return given.number(name, least=least, most=most)


def _size(given: Given, name: str, default: int) -> int:
    # Zero turns batching off in the Java client, which one byte does here.
    size = given.number(name)
    return default if size is None else max(1, min(size, INT_MAX))


def _check_partitioner(given: Given) -> None:
    name = given.text("kafka.partitioner.class")
    if name and name != _PARTITIONER:
        raise OptionError(
            f"The setting kafka.partitioner.class names {shown(name)}, "
            "but Java code does not run here: give rows a partition column instead."
        )


def _notes(given: Given, without_effect: list[str]) -> tuple[str, ...]:
    notes = [f"The setting kafka.{name} has no effect here." for name in without_effect]
    idle = (name for name in READ_OPTIONS if name not in WRITE_OPTIONS)
    notes += [f"The option {name} has no effect on a write." for name in idle if name in given]
    return tuple(notes)
