"""One message as a user sees it."""

from dataclasses import dataclass
from typing import TypeAlias

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    offset: int = 0
    timestamp_ms: int = -1
    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()
