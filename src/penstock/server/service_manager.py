"""Says to the program that started this process, as systemd does, how far it has come.

The protocol is sd_notify(3): lines of text as one datagram to the socket that NOTIFY_SOCKET names.
Without that variable nobody wants to know, and nothing is sent. With WATCHDOG_USEC, the manager
takes a process that is silent for longer than that for one that hangs, and ends it.
"""

import asyncio
import logging
import os
import socket
from collections.abc import MutableMapping
from typing import Self

_SOCKET, _WATCHDOG, _WATCHDOG_PROCESS = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"
# How often the process shows that it lives, within the time that the manager allows.
SIGNS_PER_WATCHDOG = 3
# A manager that does not read may not hold up the event loop for longer.
SEND_TIMEOUT_S = 0.1

logger = logging.getLogger(__name__)


class ServiceManager:
    def __init__(self, address: str, watchdog_s: float | None = None) -> None:
        """`address` is the socket's path, or `@name` in Linux's abstract name space, or empty."""
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._pause_s = None if watchdog_s is None else watchdog_s / SIGNS_PER_WATCHDOG

    @classmethod
    def of(cls, environment: MutableMapping[str, str]) -> Self:
        """Takes the variables out: they are meant for this process and not for its children."""
        address = environment.pop(_SOCKET, "")
        microseconds = environment.pop(_WATCHDOG, "")
        process = environment.pop(_WATCHDOG_PROCESS, "")
        is_meant = process in ("", str(os.getpid()))
        if not (is_meant and microseconds.isdecimal() and int(microseconds)):
            return cls(address)
        return cls(address, int(microseconds) / 1e6)

    def ready(self, status: str) -> None:
        """Also begins to show that the process lives, if the manager watches that."""
        self._send("READY=1", f"STATUS={status}")
        if self._address and self._pause_s is not None:
            self._live(asyncio.get_running_loop(), self._pause_s)

    def stopping(self) -> None:
        self._send("STOPPING=1", "STATUS=Stopping: answering the requests in flight.")

    def _live(self, loop: asyncio.AbstractEventLoop, pause_s: float) -> None:
        """From the event loop, so that a loop which stands still is noticed. It goes on while the
        node stops, and ends with the loop."""
        self._send("WATCHDOG=1")
        loop.call_later(pause_s, self._live, loop, pause_s)

    def _send(self, *lines: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
                sock.settimeout(SEND_TIMEOUT_S)
                sock.connect(self._address)
                sock.send("\n".join(lines).encode())
        except (OSError, ValueError) as error:
            # What the node does for its clients does not depend on it.
            logger.warning("the service manager can't be notified: %s", error)
