"""A sensor's reading, and how it travels as a record."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """`number` counts a sensor's readings from 0, so that a gap or a swap can be seen."""

    sensor: str
    number: int
    temperature: float
    at_us: int
    """Microseconds since 1970."""

    def key(self) -> bytes:
        """The sensor: its readings share a partition, and so they keep their order."""
        return self.sensor.encode()

    def value(self) -> bytes:
        at = (EPOCH + self.at_us * MICROSECOND).isoformat(timespec="microseconds")
        content = {"number": self.number, "temperature": self.temperature, "at": at}
        return json.dumps({"sensor": self.sensor, **content}).encode()


def parse(value: bytes | None) -> Reading:
    content = json.loads(value or b"{}")
    return Reading(
        sensor=content["sensor"],
        number=content["number"],
        temperature=content["temperature"],
        at_us=microseconds(datetime.fromisoformat(content["at"])),
    )


def microseconds(time: datetime) -> int:
    """Since 1970."""
    return (time - EPOCH) // MICROSECOND
