"""What the demonstration's threads report; only the main thread keeps books."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledged:
    """Readings that the broker has made durable."""

    partition: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumed:
    """One reading that reached a controller."""

    controller: str
    sensor: str
    number: int
    partition: int
    offset: int
    latency_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """A controller got its share of the partitions."""

    controller: str
    partitions: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The sensors are done: how many readings each one sent, all of them acknowledged."""

    sent: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A thread gave up."""

    error: Exception


Event = Acknowledged | Consumed | Assigned | Finished | Failed
