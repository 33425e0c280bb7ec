"""Topics for people with data: as Arrow tables, and questions in SQL over decoded JSON."""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figures import Figure, median
from benchmarks.modes import Mode
from benchmarks.spark_topics import fill_topic
from penstock.client.child_broker import ChildBroker
from penstock.records.batch import build_batch
from penstock.records.record import Record

PARTITIONS = 4
VALUE_BYTES = 100
# How often each is measured, after one time that fills the page cache and compiles.
ROUNDS = 3
TIMEOUT_S = 300.0
QUERY = "SELECT count(*) AS n, avg(value.celsius) AS mean FROM readings WHERE value.celsius > 30"
# Of the records, this share is above 30 degrees: the batches repeat, and so does their content.
WARM_SHARE = 0.25
READING = """
import sys, time, penstock
for _ in range(2):
    started = time.perf_counter()
    count = penstock.read_arrow("records", bootstrap=sys.argv[1]).num_rows
    print(count / (time.perf_counter() - started))
"""


def run(mode: Mode, folder: Path) -> Iterator[Figure]:
    with ChildBroker(folder / "data") as broker:
        fill_topic(
            broker.bootstrap,
            "records",
            partitions=PARTITIONS,
            records=mode.table_records,
            value_bytes=VALUE_BYTES,
        )
        count = fill_topic(
            broker.bootstrap,
            "readings",
            partitions=PARTITIONS,
            records=mode.sql_records,
            value_bytes=VALUE_BYTES,
            make=make_readings,
        )
        read = [ended([sys.executable, "-c", READING, broker.bootstrap]) for _ in turns()]
        asked = [ask(broker.bootstrap, count) for _ in turns()]
    rates = [[float(rate) for rate in each.split()] for each, _ in read[1:]]
    yield Figure(
        workload="tables",
        name="read_arrow of 100 B, all columns",
        value=median([again for _, again in rates]),
        unit="records/s",
        at_least=2_500_000,
    )
    yield figure("read_arrow, the first in a process", median([first for first, _ in rates]))
    what = f"penstock sql, a filter on a JSON field of {count:,} records"
    yield Figure(
        workload="tables",
        name=what,
        value=median([seconds for seconds, _ in asked[1:]]),
        unit="s",
        at_most=8,
    )
    yield figure(f"{what}, CPU of the command", median([cpu for _, cpu in asked[1:]]), "s")


def figure(name: str, value: float, unit: str = "records/s") -> Figure:
    return Figure(workload="tables", name=name, value=value, unit=unit)


def turns() -> range:
    return range(1 + ROUNDS)


def ask(bootstrap: str, count: int) -> tuple[float, float]:
    """Seconds of the whole command and of its CPU; its answer must be right."""
    command = [sys.executable, "-m", "penstock.cli.main", "sql", "--json", "-b", bootstrap, QUERY]
    started = time.perf_counter()
    out, cpu = ended(command)
    took = time.perf_counter() - started
    answer = json.loads(out)
    assert abs(answer["n"] - WARM_SHARE * count) <= count / 1000, answer
    return took, cpu


def ended(command: list[str]) -> tuple[str, float]:
    """What a command prints, and its CPU seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    outcome = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert outcome.returncode == 0, outcome.stderr
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return outcome.stdout, cpu


def make_readings(records: int, value_bytes: int) -> bytes:
    """Readings of sensors as JSON, filled up to the size."""
    now_ms = time.time_ns() // 1_000_000
    return build_batch(
        [
            Record(
                offset=number,
                timestamp_ms=now_ms + number // 100,
                key=b"sensor-%05d" % (number % 1_000),
                value=reading(number, value_bytes),
                headers=(),
            )
            for number in range(records)
        ]
    )


def reading(number: int, value_bytes: int) -> bytes:
    """A quarter of them is above 30 degrees."""
    content = {
        "sensor": f"sensor-{number % 1_000:05}",
        "celsius": round(31 + number % 7 + 0.25, 2) if number % 4 == 0 else number % 28 + 0.5,
        "humidity": round(number % 97 / 97, 3),
        "sequence": number,
        "note": "",
    }
    content["note"] = "x" * max(0, value_bytes - len(json.dumps(content, separators=(",", ":"))))
    return json.dumps(content, separators=(",", ":")).encode()
