"""Writes straight to one node, whatever the cluster thinks of it, and notes every answer."""

import contextlib
import socket
import threading
import time

from penstock.protocol.kafka.api_keys import ApiKey
from tests.e2e.wire import PRODUCE_VERSION, Wire, produce_frame

ANSWER_TIMEOUT_S = 60.0


class Probe:
    """Sends produce requests with acks=all to partition 0 of a topic on one connection."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.error_codes: list[int] = []
        self.is_closed = False
        self._topic = topic
        host, _, port = bootstrap.rpartition(":")
        self._wire = Wire(socket.create_connection((host, int(port)), ANSWER_TIMEOUT_S))
        self._sent = 0
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def send(self, count: int = 1) -> None:
        for _ in range(count):
            value = f"probe:{self._sent}".encode()
            self._wire.send(produce_frame(self._topic, value, correlation_id=self._sent))
            self._sent += 1

    def await_answers(self) -> None:
        """Until everything that was sent is answered, or never will be."""
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        while len(self.error_codes) < self._sent and not self.is_closed:
            assert time.monotonic() < deadline, f"{self.error_codes} answer {self._sent} requests"
            time.sleep(0.02)

    def _read(self) -> None:
        try:
            while True:
                answer = self._wire.receive(ApiKey.PRODUCE, PRODUCE_VERSION)
                self.error_codes.append(answer.responses[0].partition_responses[0].error_code)
        except (ConnectionError, OSError):
            self.is_closed = True

    def close(self) -> list[int]:
        """The answers so far; no more are awaited."""
        # The node may have closed it already.
        with contextlib.suppress(OSError):
            self._wire.socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)
        self._wire.socket.close()
        return self.error_codes
