"""What somebody would take instead of our doors: NATS JetStream with its Python client, and Redis
streams behind a small service in FastAPI. Both sync before they answer, as we do; JetStream is also
measured as it is without settings, when it does not.

`pip install ".[bench]"` brings the clients. The servers are `nats-server` (`go install
github.com/nats-io/nats-server/v2@latest`) and Debian's `redis-server`; without one, its figures are
left out, and a note says so.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from penstock.client.free_ports import free_ports

TIMEOUT_S = 60.0
HOST = "127.0.0.1"


def missing() -> dict[str, str]:
    """By peer, what it would need."""
    needs = {
        "JetStream": {"nats-server": bool(program("nats-server")), "nats-py": has("nats")},
        "Redis": {
            "redis-server": bool(program("redis-server")),
            "fastapi": has("fastapi"),
            "redis": has("redis"),
        },
    }
    lacking = {
        peer: ", ".join(name for name, is_there in each.items() if not is_there)
        for peer, each in needs.items()
    }
    return {peer: names for peer, names in lacking.items() if names}


def program(name: str) -> str | None:
    folders = os.pathsep.join((os.environ.get("PATH", ""), str(Path.home() / "go" / "bin")))
    return shutil.which(name, path=folders)


def has(package: str) -> bool:
    return find_spec(package) is not None


@contextmanager
def jetstream(folder: Path, *, is_synced: bool) -> Iterator[str]:
    """By default it does not sync before it acknowledges, but every two minutes."""
    (port,) = free_ports(1, HOST)
    folder.mkdir(parents=True)
    settings = folder / "nats.conf"
    settings.write_text(
        f"listen: {HOST}:{port}\njetstream {{ store_dir: {json.dumps(str(folder))}\n"
        f"  sync_interval: {'always' if is_synced else '2m'} }}\n"
    )
    with running([str(program("nats-server")), "-c", str(settings)], port):
        yield f"{HOST}:{port}"


@contextmanager
def redis_service(folder: Path) -> Iterator[str]:
    redis, service = free_ports(2, HOST)
    folder.mkdir(parents=True)
    options = ["--port", str(redis), "--bind", HOST, "--dir", str(folder), "--save", ""]
    options += ["--appendonly", "yes", "--appendfsync", "always"]
    command = [sys.executable, "-m", "uvicorn", "benchmarks.redis_service:app", "--host", HOST]
    command += ["--port", str(service), "--log-level", "warning", "--no-access-log"]
    with (
        running([str(program("redis-server")), *options], redis),
        running(command, service, {"REDIS_PORT": str(redis)}),
    ):
        yield f"{HOST}:{service}"


@contextmanager
def running(
    command: list[str], port: int, settings: dict[str, str] | None = None
) -> Iterator[None]:
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | (settings or {}),
    )
    try:
        await_port(port, process)
        yield
    finally:
        process.terminate()
        process.wait(TIMEOUT_S)


def await_port(port: int, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            socket.create_connection((HOST, port), 1).close()
        except OSError:
            assert process.poll() is None, f"{process.args} ended: {process.returncode}"
            assert time.monotonic() < deadline, f"{process.args} does not answer"
            time.sleep(0.05)
        else:
            return
