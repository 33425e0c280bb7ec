"""What consumers of the classic protocol say in their groups' metadata, as clients write it."""

import struct
from collections.abc import Iterable, Mapping

from penstock.groups.subscriptions import write_assignment


def _text(value: str | None) -> bytes:
    if value is None:
        return struct.pack(">h", -1)
    data = value.encode()
    return struct.pack(">h", len(data)) + data


def write_subscription(
    topics: Iterable[str],
    owned: Mapping[str, Iterable[int]] | None = None,
    *,
    version: int = 3,
    generation: int = -1,
    rack_id: str | None = None,
) -> bytes:
    names = sorted(topics)
    parts = [struct.pack(">hi", version, len(names)), *map(_text, names), struct.pack(">i", 0)]
    if version >= 1:
        # As in an assignment, without its version and the user data at its end.
        parts.append(write_assignment(version, owned or {})[2:-4])
    if version >= 2:
        parts.append(struct.pack(">i", generation))
    if version >= 3:
        parts.append(_text(rack_id))
    return b"".join(parts)
