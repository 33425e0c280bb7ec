"""Looks into what a consumer says that it subscribes to; the rest of it is the clients' own."""

import struct

# Only groups of this protocol type carry subscriptions in a form that is ours to read.
CONSUMER_PROTOCOL_TYPE = "consumer"

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics in a consumer's metadata, or None when it is not of that form.

    Read as version 0, which every later version begins with: a version, then the topics' names.
    """
    try:
        (count,) = _INT32.unpack_from(metadata, 2)
        position = 6
        topics = []
        for _ in range(count):
            (length,) = _INT16.unpack_from(metadata, position)
            position += 2
            name = metadata[position : position + length]
            if length < 0 or len(name) < length:
                return None
            topics.append(name.decode())
            position += length
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics) if count >= 0 else None
