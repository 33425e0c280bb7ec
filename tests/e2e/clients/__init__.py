"""One small face for five real Kafka clients, so that a test can be said once for all of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

CREATE_TIME = "create"
APPEND_TIME = "append"

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A record as a client gives or gets it; a sent one has no offset yet."""

    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None
    timestamp_type: str | None = None
    offset: int | None = None


class Client(Protocol):
    """What every client can do with one partition."""

    name: str
    codecs: frozenset[str]

    def produce(
        self,
        bootstrap: str,
        topic: str,
        messages: Sequence[Message],
        *,
        partition: int = 0,
        codec: str = "none",
    ) -> None:
        """Send all messages to one partition and return once all are acknowledged."""
        ...

    def consume(
        self, bootstrap: str, topic: str, count: int, *, partition: int = 0, offset: int = 0
    ) -> list[Message]:
        """The first `count` records from an offset on."""
        ...
