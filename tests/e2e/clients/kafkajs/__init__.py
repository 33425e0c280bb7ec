"""kafkajs: the Node.js client, driven through `client.js` in a process of its own."""

import base64
import fcntl
import json
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.e2e.clients import APPEND_TIME, CREATE_TIME, Message
from tests.e2e.processes import run_tool

HERE = Path(__file__).resolve().parent
BUILD = HERE.parents[3] / "build" / "kafkajs"
INSTALL_TIMEOUT_S = 110
CALL_TIMEOUT_S = 110


def install() -> Path:
    """Install the pinned packages into the build folder, once for all test processes."""
    BUILD.mkdir(parents=True, exist_ok=True)
    manifest = (HERE / "package.json").read_text()
    # Written last: a program that another test process is just starting must never change.
    wanted = manifest + (HERE / "client.js").read_text()
    complete = BUILD / "complete"
    with (BUILD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not complete.exists() or complete.read_text() != wanted:
            (BUILD / "package.json").write_text(manifest)
            run_tool(
                [
                    *["npm", "install", "--prefix", str(BUILD), "--no-package-lock"],
                    *["--no-audit", "--no-fund", "--loglevel=error"],
                ],
                timeout_s=INSTALL_TIMEOUT_S,
            )
            shutil.copy(HERE / "client.js", BUILD / "client.js")
            complete.write_text(wanted)
    return BUILD / "client.js"


def call(bootstrap: str, command: str, **arguments: Any) -> dict[str, Any]:
    """Run one command of `client.js`."""
    request = {"command": command, "bootstrap": bootstrap, **arguments}
    program = ["node", str(install())]
    answer = run_tool(program, stdin=json.dumps(request).encode(), timeout_s=CALL_TIMEOUT_S)
    result = json.loads(answer)
    assert isinstance(result, dict)
    return result


class KafkaJs:
    name = "kafkajs"
    # lz4 and zstd exist for it only as native packages that no longer build.
    codecs = frozenset({"none", "gzip", "snappy"})

    def produce(
        self,
        bootstrap: str,
        topic: str,
        messages: Sequence[Message],
        *,
        partition: int = 0,
        codec: str = "none",
    ) -> None:
        plain = [as_json(message) for message in messages]
        call(bootstrap, "produce", topic=topic, partition=partition, codec=codec, messages=plain)

    def consume(
        self, bootstrap: str, topic: str, count: int, *, partition: int = 0, offset: int = 0
    ) -> list[Message]:
        place = {"topic": topic, "partition": partition, "offset": offset, "count": count}
        answer = call(bootstrap, "consume", group=f"kafkajs-{uuid.uuid4().hex}", **place)
        return [as_message(raw) for raw in answer["messages"]]


def as_json(message: Message) -> dict[str, Any]:
    return {
        "key": encode(message.key),
        "value": encode(message.value),
        "headers": [[name, encode(value)] for name, value in message.headers],
        "timestamp_ms": message.timestamp_ms,
    }


def as_message(raw: dict[str, Any]) -> Message:
    return Message(
        key=decode(raw["key"]),
        value=decode(raw["value"]),
        headers=tuple((name, decode(value)) for name, value in raw["headers"]),
        timestamp_ms=raw["timestamp_ms"],
        timestamp_type=APPEND_TIME if raw["timestamp_type"] else CREATE_TIME,
        offset=raw["offset"],
    )


def encode(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def decode(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
