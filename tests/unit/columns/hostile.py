"""Records that are wrong in one place or another, as a hostile producer would write them."""

from random import Random

from penstock.records.varint import append_varint

_HUGE = (2**31, 2**62, 2**63 - 1, -(2**63))


def hostile_payload(seed: int) -> tuple[bytes, int]:
    """The bytes of some records, and how many they claim to be."""
    random = Random(seed)
    count = random.randint(1, 4)
    payload = b"".join(_record(random, at) for at in range(count))
    return payload, max(0, count + random.choice((0, 0, 0, 0, 0, 0, -1, 1)))


def _record(random: Random, offset_delta: int) -> bytes:
    header_count = random.choice((0, 0, 1, 3))
    body = b"".join(
        (
            b"\x00",
            _number(random, random.randint(-5, 300)),
            _number(random, offset_delta),
            _piece(random),
            _piece(random),
            _number(random, header_count),
            *(_piece(random, is_name) for _ in range(header_count) for is_name in (True, False)),
        )
    )
    return _number(random, len(body)) + body


def _piece(random: Random, is_name: bool = False) -> bytes:
    if not is_name and random.random() < 0.3:
        return _number(random, -1)
    data = random.randbytes(random.randint(0, 6)) if not is_name else b"name"
    return _number(random, len(data)) + data


def _number(random: Random, value: int) -> bytes:
    """The number, now and then another one, or written longer than it has to be."""
    kind = random.randint(0, 59)
    if kind == 0:
        value += random.choice((-2, -1, 1, 2))
    elif kind == 1:
        value = random.choice(_HUGE)
    out = bytearray()
    append_varint(out, value)
    if kind == 2:
        size = random.randint(len(out) + 1, 11)
        out[-1] |= 0x80
        out += b"\x80" * (size - len(out) - 1)
        out.append(random.choice((0x00, 0x00, 0x01, 0x02, 0x7F)))
    return bytes(out)
