"""Settings of the Java client, as options that begin with `kafka.`: what becomes of each.

Those that mean something here are honoured. Those that Spark's Kafka source forbids are refused,
and so is security that can't be given: going on without it would be worse than failing. Every
other name of the Java client has no effect and is noted. What is not a name of its is misspelt.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.client.wire.settings import WireSettings
from penstock.model.endpoint import EndpointError, parse_endpoint
from penstock.spark.options.errors import OptionError
from penstock.spark.options.given import INT_MAX, Given, shown
from penstock.spark.options.java_names import JAVA_NAMES
from penstock.spark.options.misspelt import nearest, nearest_hint

PREFIX = "kafka."
BOOTSTRAP = f"{PREFIX}bootstrap.servers"

_SECURITY_PREFIXES = ("sasl.", "ssl.", "security.")
_PROTOCOL = "security.protocol"
# How long brokers may be away, once a query has found them, and before it has.
OUTAGE = "maxBrokerOutage"
FIRST_CONTACT = "firstContactTimeout"
_READ_TIMEOUT_NAMES = ("kafkaConsumer.pollTimeoutMs", "kafka.default.api.timeout.ms")
_WRITE_TIMEOUT_NAMES = ("kafka.delivery.timeout.ms",)
# Those who mean forever write the largest number there is, but requests and sockets count
# milliseconds in 32 bits, and more than one of these times may be added up: eleven days.
_TIME_MS_MAX = 1_000_000_000
# The protocol has 16 bits for its length.
_CLIENT_ID_BYTES_MAX = 2**15 - 1

_WIRE_NAMES = frozenset(
    {
        "bootstrap.servers",
        "client.id",
        "metadata.max.age.ms",
        "receive.buffer.bytes",
        "request.timeout.ms",
        "security.protocol",
        "send.buffer.bytes",
    }
)
READ_NAMES = _WIRE_NAMES | {
    "default.api.timeout.ms",
    "fetch.max.bytes",
    "fetch.max.wait.ms",
    "isolation.level",
    "max.partition.fetch.bytes",
}
WRITE_NAMES = _WIRE_NAMES | {
    "acks",
    "batch.size",
    "buffer.memory",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.type",
    "compression.zstd.level",
    "delivery.timeout.ms",
    "enable.idempotence",
    "max.request.size",
    "partitioner.class",
    "partitioner.ignore.keys",
}

_INTERCEPTORS = (
    "kafka.interceptor.classes can't be set: an interceptor is Java code, which does not run here."
)
_READ_REFUSED = {
    "auto.offset.reset": "kafka.auto.offset.reset can't be set: "
    "the option startingOffsets says where a query starts, and Spark keeps the offsets from there.",
    "key.deserializer": "kafka.key.deserializer can't be set: "
    "keys arrive as bytes, to be decoded by operations on the DataFrame.",
    "value.deserializer": "kafka.value.deserializer can't be set: "
    "values arrive as bytes, to be decoded by operations on the DataFrame.",
    "enable.auto.commit": "kafka.enable.auto.commit can't be set: Spark keeps the offsets, "
    "and the option commitGroup commits finished batches to a consumer group.",
    "interceptor.classes": _INTERCEPTORS,
}
_WRITE_REFUSED = {
    "key.serializer": "kafka.key.serializer can't be set: keys are written as the bytes they are.",
    "value.serializer": "kafka.value.serializer can't be set: "
    "values are written as the bytes they are.",
    "interceptor.classes": _INTERCEPTORS,
    "transactional.id": "kafka.transactional.id can't be set: "
    "writing in transactions is not supported yet.",
}


@dataclass(frozen=True, slots=True)
class Use:
    """What one direction, reading or writing, makes of the Java client's settings."""

    honoured: frozenset[str]
    refused: dict[str, str]


READING = Use(READ_NAMES, _READ_REFUSED)
WRITING = Use(WRITE_NAMES, _WRITE_REFUSED)


def check_kafka_settings(given: Given, use: Use) -> list[str]:
    """Refuses what can't be honoured; returns the names that have no effect, in order."""
    without_effect = []
    for name in sorted(_kafka_names(given)):
        if name in use.refused:
            raise OptionError(f"The setting {use.refused[name]}")
        _check_security(name, given)
        if name in use.honoured:
            continue
        if name not in JAVA_NAMES:
            close = nearest(name, JAVA_NAMES)
            hint = nearest_hint(close and PREFIX + close)
            raise OptionError(f"{PREFIX}{name} is not a setting of the Kafka client{hint}.")
        without_effect.append(name)
    return without_effect


def _kafka_names(given: Given) -> Iterable[str]:
    return (name.removeprefix(PREFIX) for name in given.values if name.startswith(PREFIX))


def _check_security(name: str, given: Given) -> None:
    # The value is never shown, because it may be a secret.
    if not name.startswith(_SECURITY_PREFIXES):
        return
    if name == _PROTOCOL and (given.text(PREFIX + name) or "").upper() == "PLAINTEXT":
        return
    raise OptionError(
        f"The setting {PREFIX}{name} asks for security that is not supported: "
        "only connections in plain text are supported."
    )


def wire_settings(given: Given, use: Use) -> WireSettings:
    """How to reach the cluster; whatever is not set keeps the wire client's own default."""
    wanted: dict[str, object] = {"bootstrap": _bootstrap(given)}
    client_id = given.text("kafka.client.id")
    if client_id:
        wanted["client_id"] = _checked_client_id(client_id)
    # A socket that may not wait at all would not even wait until it is connected.
    _set_seconds(wanted, "request_timeout_s", given, ("kafka.request.timeout.ms",), least_ms=1)
    _set_seconds(wanted, "metadata_ttl_s", given, ("kafka.metadata.max.age.ms",))
    for field, name in (
        ("receive_buffer_bytes", "kafka.receive.buffer.bytes"),
        ("send_buffer_bytes", "kafka.send.buffer.bytes"),
    ):
        size = given.number(name, least=-1, most=INT_MAX)
        if size is not None and size > 0:
            wanted[field] = size
    if use is READING:
        wanted.update(_fetching(given))
    else:
        _set_seconds(wanted, "retry_timeout_s", given, _WRITE_TIMEOUT_NAMES)
    for field, name in (("retry_timeout_s", OUTAGE), ("first_contact_timeout_s", FIRST_CONTACT)):
        if name in given:
            wanted[field] = min(given.seconds(name, 0.0), _TIME_MS_MAX / 1000)
    return WireSettings(**wanted)  # type: ignore[arg-type]


def _fetching(given: Given) -> dict[str, object]:
    wanted: dict[str, object] = {
        "isolation_read_committed": given.one_of(
            "kafka.isolation.level", ("read_uncommitted", "read_committed"), "read_uncommitted"
        )
        == "read_committed"
    }
    sizes = [
        given.number(name, most=INT_MAX)
        for name in ("kafka.fetch.max.bytes", "kafka.max.partition.fetch.bytes")
    ]
    given_sizes = [size for size in sizes if size is not None]
    if given_sizes:
        # A fetch of nothing would never end; one byte still brings a whole batch.
        wanted["fetch_bytes_max"] = max(1, min(given_sizes))
    wait = given.number("kafka.fetch.max.wait.ms", most=INT_MAX)
    if wait is not None:
        wanted["fetch_wait_ms"] = min(wait, _TIME_MS_MAX)
    _set_seconds(wanted, "retry_timeout_s", given, _READ_TIMEOUT_NAMES)
    return wanted


def _set_seconds(
    wanted: dict[str, object],
    field: str,
    given: Given,
    names: tuple[str, ...],
    *,
    least_ms: int = 0,
) -> None:
    """The longest of the times given in milliseconds, if any is."""
    times = [given.number(name) for name in names]
    known = [time for time in times if time is not None]
    if known:
        wanted[field] = min(max(least_ms, *known), _TIME_MS_MAX) / 1000


def _checked_client_id(client_id: str) -> str:
    if len(client_id.encode()) > _CLIENT_ID_BYTES_MAX:
        raise OptionError(
            f"The option kafka.client.id may have at most {_CLIENT_ID_BYTES_MAX} bytes, "
            f"not {shown(client_id)}."
        )
    return client_id


def _bootstrap(given: Given) -> str:
    text = given.text(BOOTSTRAP)
    if not text:
        raise OptionError(
            "The option kafka.bootstrap.servers must be set to the address of a broker, "
            "as in localhost:9092."
        )
    addresses = [address.strip() for address in text.split(",") if address.strip()]
    for address in addresses or [text]:
        try:
            parse_endpoint(address)
        except EndpointError as error:
            raise OptionError(
                f"The option kafka.bootstrap.servers holds {shown(address)}, but {error}."
            ) from None
    return ",".join(addresses)
