"""What the demonstration's threads report; only the main thread keeps books."""

from dataclasses import dataclass

from penstock.cli.demo.readings import Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledged:
    """A reading that the broker has made durable; those of a sensor come in their order."""

    reading: Reading
    partition: int
    offset: int
    # When that was heard: since 1970, and by the clock that is never set.
    at_us: int
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumed:
    """One reading that reached a controller."""

    controller: str
    sensor: str
    number: int
    partition: int
    offset: int
    # When the sensor said it, in microseconds since 1970.
    sent_us: int
    latency_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Alerted:
    """One alert of the pipeline that reached a controller."""

    controller: str
    sensor: str
    number: int
    temperature: float
    usual: float
    # When the sensor said it, in microseconds since 1970.
    at_us: int
    latency_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """A controller got its share of the partitions of readings."""

    controller: str
    partitions: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSeen:
    """Which node leads each partition of readings, and how many partitions lack a copy."""

    leaders: dict[int, int]
    under_replicated: int
    # When the cluster was asked, by the monotonic clock.
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The sensors are done: how many readings each one sent, all of them acknowledged."""

    sent: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A thread gave up."""

    error: Exception


Event = Acknowledged | Consumed | Alerted | Assigned | ClusterSeen | Finished | Failed
