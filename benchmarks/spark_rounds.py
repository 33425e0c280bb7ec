"""Contenders that take turns, and the figures that follow from their rounds."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from benchmarks.figures import Figure, median
from benchmarks.spark_rig import JVM, OURS


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One run of one contender: records per second, and Spark's CPU microseconds per record."""

    rate: float
    cpu_us: float


Round = dict[str, Sample]


def take_turns(
    contenders: Sequence[str], rounds: int, measure: Callable[[str], Sample]
) -> list[Round]:
    """Neighbours in time share the machine's moods; every other round goes backwards."""
    taken = []
    for number in range(rounds):
        order = contenders if number % 2 == 0 else list(reversed(contenders))
        taken.append({contender: measure(contender) for contender in order})
    return taken


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """Ours must reach this share of a contender's rate."""

    contender: str
    label: str
    at_least: float


BEATS_CONNECTOR = Promise(contender=JVM, label="JVM connector", at_least=1.0)


def figures(
    workload: str, rounds: Sequence[Round], promises: Sequence[Promise], value_bytes: int
) -> Iterator[Figure]:
    """Rates are medians; a ratio is that of neighbours in time, its median and its worst round."""

    def figure(name: str, value: float, unit: str, at_least: float | None = None) -> Figure:
        return Figure(workload=workload, name=name, value=value, unit=unit, at_least=at_least)

    def rate(contender: str) -> float:
        return median([one[contender].rate for one in rounds])

    yield figure("rate", rate(OURS), "records/s")
    yield figure("volume", rate(OURS) * value_bytes / 1e6, "MB/s")
    yield figure("Spark CPU", median([one[OURS].cpu_us for one in rounds]), "us/record")
    for promise in promises:
        ratios = [one[OURS].rate / one[promise.contender].rate for one in rounds]
        yield figure(f"rate of the {promise.label}", rate(promise.contender), "records/s")
        cpu_us = median([one[promise.contender].cpu_us for one in rounds])
        yield figure(f"Spark CPU of the {promise.label}", cpu_us, "us/record")
        name = f"rate / {promise.label}"
        yield figure(name, median(ratios), "", at_least=promise.at_least)
        yield figure(f"{name}, worst round", min(ratios), "")
