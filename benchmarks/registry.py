"""The schema registry: how long it loads, what it takes, and how fast it answers, also beside
another one: Apicurio's, which serves the same paths from memory."""

import http.client
import itertools
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.e2e.apicurio import apicurio, missing

from benchmarks.figures import Figure, Note, median
from benchmarks.modes import Mode
from benchmarks.probe import connect, produce_request, rss_megabytes
from benchmarks.small_requests import measure, pipeline
from penstock.client.child_broker import ChildBroker

SCHEMAS = 10_000
FIELDS = 10
TOPIC = "_schemas"
TIMEOUT_S = 60.0
# A topic whose records are looked at, and one whose are not.
CHECKED, PLAIN = "checked", "plain"
# Beside the other registry.
BESIDE_SCHEMAS = 100
LOOK_UPS = 500
ROUNDS = 9
RATIO_MIN = 1.0
HEADERS = {"content-type": "application/vnd.schemaregistry.v1+json"}


def run(mode: Mode, folder: Path) -> Iterator[Figure | Note]:
    seed = random.Random(7)
    with ChildBroker(folder / "data") as broker:
        fill(broker.bootstrap)
        client = http.client.HTTPConnection(broker.http, timeout=TIMEOUT_S)
        ask(client, "GET", "/health/ready")
        (door,) = psutil.Process(broker.pid).children()
        before = rss_megabytes(door.pid)
        started = time.monotonic()
        ask(client, "GET", f"/schemas/ids/{SCHEMAS}")
        yield figure("load 10,000 schemas", time.monotonic() - started, "s", at_most=3)
        yield figure(
            "memory that 10,000 schemas add", rss_megabytes(door.pid) - before, "MB", at_most=100
        )
        count = int(1_000 * mode.http_seconds)
        ids = [seed.randint(1, SCHEMAS) for _ in range(count)]
        # In turns with a request that asks for nothing: what both take is the machine's.
        took, floor = [], []
        for each in ids:
            took.append(timed(client, "GET", f"/schemas/ids/{each}"))
            floor.append(timed(client, "GET", "/schemas/types"))
        took.sort()
        floor.sort()
        yield figure("look-up by id, p50", 1_000 * took[len(took) // 2], "ms")
        yield figure("look-up by id, p99", 1_000 * took[len(took) * 99 // 100], "ms", at_most=2)
        yield figure("a request for nothing, p99", 1_000 * floor[len(floor) * 99 // 100], "ms")
        yield figure("look-ups by id, one connection", len(took) / sum(took), "requests/s")
        took = sorted(
            timed(client, "GET", f"/subjects/subject-{each}/versions/latest") for each in ids[:500]
        )
        yield figure("latest version, p99", 1_000 * took[len(took) * 99 // 100], "ms")
        took = sorted(
            timed(client, "POST", f"/subjects/new-{each}/versions", {"schema": schema(-each)})
            for each in range(1, 201)
        )
        yield figure("register, p99", 1_000 * took[len(took) * 99 // 100], "ms")
    yield from validation(mode, folder)
    yield from beside_apicurio(mode, folder)


def validation(mode: Mode, folder: Path) -> Iterator[Figure]:
    """What a topic costs that has the schemas of its records looked at, beside one that has not."""
    with ChildBroker(folder / "validating") as broker:
        registry = Side(f"http://{broker.http}")
        (schema_id,) = registry.register([f"{CHECKED}-value"])
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        settings = {CHECKED: {"confluent.value.schema.validation": "true"}, PLAIN: {}}
        wanted = [NewTopic(topic, 1, config=each) for topic, each in settings.items()]
        for made in admin.create_topics(wanted).values():
            made.result(TIMEOUT_S)
        value = b"\0" + schema_id.to_bytes(4) + bytes(95)
        for size, count in ((1, mode.small_requests), (1_000, max(1, mode.small_requests // 500))):
            used: dict[str, list[float]] = {topic: [] for topic in settings}
            requests = {topic: produce_request(topic, [value] * size) for topic in settings}
            with connect(broker.bootstrap) as connection:
                for request in requests.values():
                    pipeline(connection, count // 10 + 1, request)
                for number in range(ROUNDS if mode.is_judged else 1):
                    for topic in sorted(settings, reverse=number % 2 == 1):
                        took = measure(broker, connection, count, requests[topic])[1]
                        used[topic].append(took / size)
            added = [on - off for on, off in zip(used[CHECKED], used[PLAIN], strict=True)]
            what = "one record" if size == 1 else f"{size:,} records"
            yield figure(f"validation adds, batches of {what}", median(added), "us/record")


def beside_apicurio(mode: Mode, folder: Path) -> Iterator[Figure | Note]:
    """Look-ups by id on one connection, in turns, of the same schemas; both are warm."""
    if missing():
        names = ", ".join(missing())
        yield Note(topic="registry", text=f"Apicurio was not measured: there is no {names}.")
        return
    with ChildBroker(folder / "beside") as broker, apicurio() as theirs:
        sides = [Side(f"http://{broker.http}"), Side(theirs)]
        for side in sides:
            side.ids = side.register([f"beside-{number}" for number in range(BESIDE_SCHEMAS)])
        warm_up_until = time.monotonic() + mode.warm_up_seconds
        while time.monotonic() < warm_up_until:
            for side in sides:
                side.rate(LOOK_UPS)
        rates: list[list[float]] = [[], []]
        for number in range(ROUNDS if mode.is_judged else 1):
            # Who is second finds a machine that the first has warmed up.
            for which in sorted((0, 1), reverse=number % 2 == 1):
                rates[which].append(sides[which].rate(LOOK_UPS))
    ours, others = (median(each) for each in rates)
    yield figure("look-ups by id beside another registry", ours, "requests/s")
    yield figure("the same there (Apicurio 2.6, warm)", others, "requests/s")
    ratio = median([own / other for own, other in zip(*rates, strict=True)])
    yield Figure(
        workload="registry",
        name="our rate / theirs, median round",
        value=ratio,
        unit="",
        at_least=RATIO_MIN,
    )


class Side:
    """One of the two registries, on one connection."""

    def __init__(self, base: str) -> None:
        url = urlsplit(base)
        self._client = http.client.HTTPConnection(url.netloc, timeout=TIMEOUT_S)
        self._path = url.path
        self.ids: list[int] = []

    def register(self, subjects: list[str]) -> list[int]:
        """The id of a schema under each."""
        ids = []
        for number, subject in enumerate(subjects):
            path = f"{self._path}/subjects/{subject}/versions"
            answer = ask(self._client, "POST", path, {"schema": schema(number)})
            ids.append(int(json.loads(answer)["id"]))
        return ids

    def rate(self, count: int) -> float:
        started = time.monotonic()
        for each in itertools.islice(itertools.cycle(self.ids), count):
            ask(self._client, "GET", f"{self._path}/schemas/ids/{each}")
        return count / (time.monotonic() - started)


def schema(number: int) -> str:
    fields = [{"name": f"field_{each}", "type": ["null", "string"]} for each in range(FIELDS)]
    name = f"Record{number}".replace("-", "_")
    return json.dumps({"type": "record", "name": name, "namespace": "bench", "fields": fields})


def fill(bootstrap: str) -> None:
    """As a registry that was used for years: the records are in its topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic(TOPIC, 1, config={"cleanup.policy": "compact"})
    admin.create_topics([topic])[TOPIC].result(TIMEOUT_S)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50})
    for number in range(1, SCHEMAS + 1):
        place = {"subject": f"subject-{number}", "version": 1}
        key = {"keytype": "SCHEMA", **place, "magic": 1}
        value = {**place, "id": number, "schema": schema(number), "deleted": False}
        producer.produce(TOPIC, json.dumps(value), json.dumps(key))
    assert producer.flush(TIMEOUT_S) == 0


def timed(client: http.client.HTTPConnection, method: str, path: str, body: object = None) -> float:
    started = time.monotonic()
    ask(client, method, path, body)
    return time.monotonic() - started


def ask(client: http.client.HTTPConnection, method: str, path: str, body: object = None) -> bytes:
    client.request(method, path, None if body is None else json.dumps(body), HEADERS)
    answer = client.getresponse()
    content = answer.read()
    assert answer.status == 200, content
    return content


def figure(name: str, value: float, unit: str, at_most: float | None = None) -> Figure:
    return Figure(workload="registry", name=name, value=value, unit=unit, at_most=at_most)
