"""Random messages of any declared class and version, and a list of all of them."""

import random
from typing import Any
from uuid import UUID

from penstock.protocol.kafka.catalogue import EXCHANGES
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.layout import layout_of
from penstock.protocol.kafka.schema import (
    ARRAY,
    NESTED,
    Field,
    Kind,
    boolean,
    bytes_,
    float64,
    records,
    schema_of,
    string,
    uuid,
)

MESSAGES: list[type] = [
    message for exchange in EXCHANGES.values() for message in (exchange.request, exchange.response)
]
MESSAGE_VERSIONS: list[tuple[type, int]] = [
    (message, version)
    for message in MESSAGES
    for version in range(schema_of(message).versions[0], schema_of(message).versions[1] + 1)
]
KIO_DATES = frozenset({"issue_timestamp_ms", "expiry_timestamp_ms", "max_timestamp_ms"})
KIO_DURATIONS = frozenset(
    {
        "retention_time_ms",
        "session_lifetime_ms",
        "max_lifetime_ms",
        "renew_period_ms",
        "expiry_time_period_ms",
    }
)
WORDS = ("", "a", "topic", "größe", "日本", "🚰", "x" * 126, "y" * 127, "z" * 300)


def name_of(case: tuple[type, int]) -> str:
    return f"{case[0].__name__}-{case[1]}"


def sample(struct_class: type, version: int, rng: random.Random) -> Any:
    """An instance whose fields of this version are random and whose other fields are default."""
    layout = layout_of(schema_of(struct_class), version)
    values: dict[str, object] = {}
    for field in layout.ordinary:
        values[field.name] = sample_value(field, version, rng)
    for field in layout.tagged:
        value = sample_value(field, version, rng)
        # The oracle does not send a struct of defaults; we don't build one, so both agree.
        if rng.random() < 0.5 and not (field.kind is NESTED and value == field.element()):
            values[field.name] = value
    return struct_class(**values)


def sample_value(field: Field, version: int, rng: random.Random) -> object:
    # A tagged field is absent rather than null.
    if field.tag is None and field.nullable_in(version) and rng.random() < 0.3:
        return None
    if field.kind is NESTED:
        return sample(field.element, version, rng)
    if field.kind is ARRAY:
        return sample_array(field, version, rng)
    if field.name.endswith("error_code"):
        return rng.choice(list(ErrorCode))
    if field.name == "log_append_time_ms":
        # The oracle holds this one as a date of whole seconds.
        return rng.choice((-1, rng.randrange(2**31) * 1000))
    if field.name in KIO_DATES:
        # And these too, but never as none.
        return rng.randrange(2**31) * 1000
    if field.name in KIO_DURATIONS:
        # And these as durations, which end before 64 bits of milliseconds do.
        return rng.choice((-1, rng.randrange(2**40)))
    return sample_scalar(field.kind, rng)


def sample_array(field: Field, version: int, rng: random.Random) -> list[Any]:
    count = rng.choice((0, 1, 1, 2, 3))
    if isinstance(field.element, Kind):
        count = rng.choice((count, 9, 130)) if field.element.size else count
        return [sample_scalar(field.element, rng) for _ in range(count)]
    return [sample(field.element, version, rng) for _ in range(count)]


def sample_scalar(kind: Kind, rng: random.Random) -> Any:
    if kind is string:
        return rng.choice(WORDS)
    if kind in (bytes_, records):
        return rng.randbytes(rng.choice((0, 1, 126, 127, 400)))
    if kind is uuid:
        return UUID(int=rng.choice((0, rng.getrandbits(128))))
    if kind is boolean:
        return rng.random() < 0.5
    if kind is float64:
        return rng.random()
    return sample_integer(kind, rng)


def sample_integer(kind: Kind, rng: random.Random) -> int:
    bits = 8 * kind.size
    least = 0 if kind.format.isupper() else -(2 ** (bits - 1))
    most = least + 2**bits - 1
    return rng.choice((least, -1 if least else 0, 0, 1, most, rng.randint(least, most)))
