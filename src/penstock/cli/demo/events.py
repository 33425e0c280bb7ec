"""What the demonstration's threads report; only the main thread keeps books."""

from dataclasses import dataclass

from penstock.cli.demo.readings import Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledged:
    """A reading that the broker has made durable; those of a sensor come in their order."""

    reading: Reading
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
class Alerted:
    """One alert of the pipeline that reached a controller."""

    controller: str
    sensor: str
    number: int
    temperature: float
    usual: float
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


Event = Acknowledged | Consumed | Alerted | Assigned | Finished | Failed
