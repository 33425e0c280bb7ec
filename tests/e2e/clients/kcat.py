"""kcat: an older librdkafka behind a command line; it speaks text, so tests give it text."""

import itertools
import json
from collections.abc import Sequence
from typing import Any

from tests.e2e.clients import APPEND_TIME, CODECS, CREATE_TIME, Message
from tests.e2e.processes import run_tool

KEY_DELIMITER = "|"


class Kcat:
    name = "kcat"
    codecs = frozenset(CODECS)

    def produce(
        self,
        bootstrap: str,
        topic: str,
        messages: Sequence[Message],
        *,
        partition: int = 0,
        codec: str = "none",
    ) -> None:
        """kcat gives all messages of a run the same headers, so each change starts a new run."""
        for headers, run in itertools.groupby(messages, key=lambda message: message.headers):
            flags = [f"-H{name}={(value or b'').decode()}" for name, value in headers]
            lines = [line_of(message) for message in run]
            run_tool(
                [
                    *["kcat", "-b", bootstrap, "-P", "-t", topic, "-p", str(partition), "-Z"],
                    *["-K", KEY_DELIMITER, "-z", codec, "-X", "acks=all", *flags],
                ],
                stdin="\n".join(lines).encode(),
            )

    def consume(
        self, bootstrap: str, topic: str, count: int, *, partition: int = 0, offset: int = 0
    ) -> list[Message]:
        output = run_tool(
            [
                *["kcat", "-b", bootstrap, "-C", "-t", topic, "-p", str(partition), "-J", "-q"],
                *["-o", str(offset), "-c", str(count), "-e", "-X", "check.crcs=true"],
            ]
        )
        return [as_message(json.loads(line)) for line in output.decode().splitlines()]


def line_of(message: Message) -> str:
    value = (message.value or b"").decode()
    return value if message.key is None else f"{message.key.decode()}{KEY_DELIMITER}{value}"


def as_message(raw: dict[str, Any]) -> Message:
    names_and_values = raw.get("headers", [])
    pairs = zip(names_and_values[::2], names_and_values[1::2], strict=True)
    return Message(
        key=as_bytes(raw["key"]),
        value=as_bytes(raw["payload"]),
        headers=tuple((name, as_bytes(value)) for name, value in pairs),
        timestamp_ms=raw["ts"],
        timestamp_type=APPEND_TIME if raw["tstype"] == "logappend" else CREATE_TIME,
        offset=raw["offset"],
    )


def as_bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()
