"""How our clients connect: librdkafka's settings, its log, and a quick look at the address."""

import logging
import os
import socket
from collections.abc import Mapping
from typing import Any

from penstock.client.errors import ClientError, no_answer

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
# Commands and programs find their cluster by it.
BOOTSTRAP_VARIABLE = "PENSTOCK_BOOTSTRAP"
# How long an address may take to accept a connection, and a broker to answer a question.
CONNECT_TIMEOUT_S = 3.0
ANSWER_TIMEOUT_S = 5.0

LOGGER = logging.getLogger("penstock.client")
# A library keeps quiet unless its user configures logging; without a handler of its own, Python
# would print librdkafka's warnings to stderr.
LOGGER.addHandler(logging.NullHandler())


def bootstrap_or_default(bootstrap: str | None) -> str:
    """Where a program connects that names no address."""
    return bootstrap or os.environ.get(BOOTSTRAP_VARIABLE) or DEFAULT_BOOTSTRAP


def librdkafka_settings(bootstrap: str, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """What all our clients have in common; `options` are the user's and win."""
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "client.id": "penstock",
        "logger": LOGGER,
        "socket.connection.setup.timeout.ms": int(CONNECT_TIMEOUT_S * 1000),
        "reconnect.backoff.max.ms": 1_000,
    }
    settings.update(options or {})
    return settings


def check_reachable(bootstrap: str, timeout_s: float = CONNECT_TIMEOUT_S) -> None:
    """Fail at once, and with the real reason, where librdkafka would keep trying in silence."""
    reason = "the address is empty"
    for address in filter(None, (part.strip() for part in bootstrap.split(","))):
        try:
            socket.create_connection(split_address(address), timeout_s).close()
        except OSError as error:
            reason = reason_of_failure(error, timeout_s)
        else:
            return
    raise no_answer(bootstrap, reason)


def split_address(address: str) -> tuple[str, int]:
    """Host and port of HOST:PORT; raises ClientError."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65_535:
        raise ClientError(f"{address!r} is not HOST:PORT, as in {DEFAULT_BOOTSTRAP}.")
    return host.removeprefix("[").removesuffix("]"), int(port)


def reason_of_failure(error: OSError, timeout_s: float) -> str:
    """Why a connection failed, to stand inside a sentence."""
    if isinstance(error, TimeoutError):
        return f"no connection within {timeout_s:g} s"
    return (error.strerror or str(error)).lower().rstrip(".")
