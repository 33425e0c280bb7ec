"""Connections that wait for their next use; anyone who borrows one has it alone."""

import select
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.client.connection import ANSWER_TIMEOUT_S, CONNECT_TIMEOUT_S
from penstock.client.wire.link import Link
from penstock.client.wire.settings import WireSettings
from penstock.model.endpoint import Endpoint

# Of one broker; more are closed when they are given back.
IDLE_LINKS_MAX = 4


class Links:
    def __init__(self, settings: WireSettings) -> None:
        self._settings = settings
        self._idle: dict[Endpoint, list[Link]] = {}
        self._lock = threading.Lock()
        self._is_closed = False

    @contextmanager
    def using(self, endpoint: Endpoint, timeout_s: float) -> Iterator[Link]:
        """A link for one exchange."""
        link = self.borrow(endpoint, timeout_s)
        try:
            yield link
        finally:
            self.give_back(endpoint, link)

    def borrow(self, endpoint: Endpoint, timeout_s: float) -> Link:
        """An open link; raises OSError when there is none to be had."""
        while (link := self._take_idle(endpoint)) is not None:
            if _is_usable(link):
                break
            link.close()
        else:
            link = self._open(endpoint)
        link.set_timeout(timeout_s)
        return link

    def give_back(self, endpoint: Endpoint, link: Link) -> None:
        """For the next one; a link on which an answer is missing is closed instead."""
        with self._lock:
            idle = self._idle.setdefault(endpoint, [])
            if link.is_idle and not self._is_closed and len(idle) < IDLE_LINKS_MAX:
                idle.append(link)
                return
        link.close()

    def close(self) -> None:
        """Closes what is idle, and from now on what is given back."""
        with self._lock:
            self._is_closed = True
            links = [link for idle in self._idle.values() for link in idle]
            self._idle.clear()
        for link in links:
            link.close()

    def _take_idle(self, endpoint: Endpoint) -> Link | None:
        with self._lock:
            idle = self._idle.get(endpoint)
            return idle.pop() if idle else None

    def _open(self, endpoint: Endpoint) -> Link:
        settings = self._settings
        return Link.open(
            endpoint.host,
            endpoint.port,
            name=str(endpoint),
            connect_timeout_s=min(settings.request_timeout_s, CONNECT_TIMEOUT_S),
            answer_timeout_s=min(settings.request_timeout_s, ANSWER_TIMEOUT_S),
            client_id=settings.client_id,
            receive_buffer_bytes=settings.receive_buffer_bytes,
            send_buffer_bytes=settings.send_buffer_bytes,
        )


def _is_usable(link: Link) -> bool:
    """A broker says nothing unasked: what can be read is the end of the connection."""
    poll = select.poll()
    poll.register(link.socket, select.POLLIN)
    return not poll.poll(0)
