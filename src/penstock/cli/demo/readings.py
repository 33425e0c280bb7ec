"""A sensor's reading, and how it travels as a record."""

import json
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """`number` counts a sensor's readings from 0, so that a gap or a swap can be seen."""

    sensor: str
    number: int
    celsius: float
    sent_ms: float

    def key(self) -> bytes:
        """The sensor: its readings share a partition, and so they keep their order."""
        return self.sensor.encode()

    def value(self) -> bytes:
        content = {"number": self.number, "celsius": self.celsius, "sent_ms": self.sent_ms}
        return json.dumps(content).encode()


def parse(key: bytes | None, value: bytes | None) -> Reading:
    content = json.loads(value or b"{}")
    return Reading(
        sensor=(key or b"").decode(),
        number=content["number"],
        celsius=content["celsius"],
        sent_ms=content["sent_ms"],
    )
