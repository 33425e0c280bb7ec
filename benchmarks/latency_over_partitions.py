"""Small messages over many partitions, with a consumer on all of them: how long producers wait."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.figures import Figure, Note, Picture, median
from benchmarks.latency import Latency, Load, measure_latency
from benchmarks.line_chart import Line, line_chart
from benchmarks.modes import Mode
from benchmarks.sides import DURABLE, UNSYNCED, Side, kafka_note, penstock_and_kafka

TOPIC = "many"
RATE = 2_000
SIZE = 100
CLIENTS = (1, 20)
# What the full mode measures, and what is promised there: the median and the 99th percentile of a
# durable write, and the median of one that is acknowledged before its sync.
PARTITIONS = (100, 500, 2_000)
P50_MS = {DURABLE: (3.0, 4.0, 8.0), UNSYNCED: (1.0, 1.5, 3.0)}
P99_MS = {DURABLE: (30.0, 40.0, 80.0)}

Rounds = Sequence[Latency]


def run(mode: Mode, folder: Path) -> Iterator[Figure | Note | Picture]:
    found: dict[tuple[int, int, str], Latency] = {}
    with penstock_and_kafka(mode, folder) as sides:
        for place, partitions in enumerate(mode.latency_partitions):
            topics = {side.name: side.create(TOPIC, partitions) for side in sides}
            for clients in CLIENTS:
                load = Load(
                    partitions=partitions,
                    rate=RATE,
                    seconds=mode.latency_seconds,
                    size=SIZE,
                    clients=clients,
                )
                for name, rounds in interleaved(sides, topics, load, mode.rounds).items():
                    found[place, clients, name] = middle(rounds)
                    yield from figures(place, clients, name, found[place, clients, name])
            for side in sides:
                side.delete(TOPIC)
    yield kafka_note(mode)
    for clients in CLIENTS:
        yield Picture(
            name=f"many-partitions-{clients}", svg=drawn(mode.latency_partitions, clients, found)
        )


def interleaved(
    sides: Sequence[Side], topics: dict[str, str], load: Load, rounds: int
) -> dict[str, list[Latency]]:
    """Rounds in which every side has its turn; each warms up all partitions before it counts."""
    found: dict[str, list[Latency]] = {side.name: [] for side in sides}
    for _ in range(rounds):
        for side in sides:
            found[side.name].append(measure_latency(side.bootstrap, topics[side.name], load))
    return found


def middle(rounds: Rounds) -> Latency:
    return Latency(median([one.p50_ms for one in rounds]), median([one.p99_ms for one in rounds]))


def figures(place: int, clients: int, name: str, found: Latency) -> Iterator[Figure]:
    for share, value, bounds in (("p50", found.p50_ms, P50_MS), ("p99", found.p99_ms, P99_MS)):
        yield Figure(
            workload=title(PARTITIONS[place], clients),
            name=f"{share}, {name}",
            value=value,
            unit="ms",
            at_most=bounds[name][place] if name in bounds else None,
        )


def title(partitions: int, clients: int) -> str:
    who = "one client" if clients == 1 else f"{clients} clients"
    return f"{partitions:,} partitions, {who}"


def drawn(counts: Sequence[int], clients: int, found: dict[tuple[int, int, str], Latency]) -> str:
    """Over the partitions that there were, which are few in the quick mode."""
    names = list(dict.fromkeys(name for _, _, name in found))
    lines = []
    for name in names:
        points = [(count, found[place, clients, name]) for place, count in enumerate(counts)]
        lines.append(Line(f"p50, {name}", [(count, one.p50_ms) for count, one in points]))
        lines.append(
            Line(f"p99, {name}", [(count, one.p99_ms) for count, one in points], is_dashed=True)
        )
    who = "one client" if clients == 1 else f"{clients} clients"
    return line_chart(
        title=f"{RATE:,} messages of {SIZE} B a second, {who}",
        across="partitions",
        upward="ms until acknowledged",
        lines=lines,
    )
