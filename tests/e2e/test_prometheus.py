"""Proves that a real Prometheus can scrape three nodes and a pipeline, and that every query of the
dashboards and every alert answers with data, after a node was killed, a group fell behind and a
record was given up."""

import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from confluent_kafka import Consumer, Producer, TopicPartition

from penstock.client.free_ports import free_ports
from penstock.spark.java import JavaNotFound, find_java
from penstock.testing import ProcessCluster
from tests.dashboards import DASHBOARDS
from tests.e2e.processes import clean_environment
from tests.e2e.queue_members import produce
from tests.e2e.test_client_metrics import SET, edited
from tests.e2e.test_dead_letters import GROUP, TOPIC, Worker, begin, rejecting
from tests.test_dashboards import RULES, alerts
from tests.waiting import wait_until

# One after the other: two clusters at once on two cores would measure each other.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("cluster-clients"),
    pytest.mark.timeout(600),
]

ORDERS, READINGS, SLOW = "orders", "readings", "slow"
# A flow that decodes, one for what it can't decode, and as little else as Spark allows.
PIPELINE = """
pipeline: iot
storage: ${folder}/storage
parameters: {brokers: "", folder: ""}
sources:
  readings:
    topic: readings
    brokers: ${brokers}
    starting: earliest
    decode: {format: json, schema: celsius DOUBLE}
    dead_letters: readings-dead
flows:
  clean:
    from: readings
    to: {parquet: "${folder}/clean"}
"""
HOUR_MS = 3_600_000
# Those that the scripted run makes true; of the others, what they compare has values.
FIRING = {
    "PenstockNodeUnreached",
    "PenstockUnderReplicated",
    "PenstockLagGrowing",
    "PenstockDeadLetters",
    "PenstockPipelineDeadLetters",
}
VARIABLE = re.compile(r"\$\w+")
INTERVALS = {"$__rate_interval": "1m", "$__range": "10m"}
COMPARISON = re.compile(r" [<>] [\d.]+")
LABEL_VALUES = re.compile(r"label_values\((.*), (\w+)\)")


class Prometheus:
    """Scrapes every second until the end."""

    def __init__(self, folder: Path, targets: dict[str, list[str]]) -> None:
        (port,) = free_ports(1)
        self._client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30.0)
        jobs = [
            {"job_name": name, "static_configs": [{"targets": each}]}
            for name, each in targets.items()
        ]
        settings = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(RULES)],
            "scrape_configs": jobs,
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(settings))
        self._log = (folder / "prometheus.log").open("wb")
        self._process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'prometheus'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=self._log,
            stderr=self._log,
        )

    def is_ready(self) -> bool:
        try:
            return self._client.get("/-/ready").status_code == 200
        except httpx.TransportError:
            assert self._process.poll() is None, "it has ended; see prometheus.log"
            return False

    def ask(self, query: str) -> list[Any]:
        answer = self._client.get("/api/v1/query", params={"query": query})
        assert answer.status_code == 200, f"{query}: {answer.text}"
        found: list[Any] = answer.json()["data"]["result"]
        return found

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(30)
        self._client.close()
        self._log.close()


class RunningPipeline:
    """`penstock pipeline run` on a small Spark of its own."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        (port,) = free_ports(1)
        self.address = f"127.0.0.1:{port}"
        self._bootstrap = bootstrap
        path = folder / "pipeline.yaml"
        path.write_text(PIPELINE)
        self._log = (folder / "pipeline.log").open("wb")
        given = [f"brokers={bootstrap}", f"folder={folder}"]
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "penstock.cli.main", "pipeline", "run", str(path)),
                *(word for each in given for word in ("-p", each)),
                *("--master", "local[1]", "--conf", "spark.ui.enabled=false"),
                *("--metrics", self.address),
            ],
            stdout=self._log,
            stderr=self._log,
            env=clean_environment({"SPARK_LOCAL_IP": "127.0.0.1"}),
        )

    def feed(self, *values: bytes) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "log_level": 2})
        for value in values:
            producer.produce(READINGS, value)
        assert producer.flush(60) == 0

    def close(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(60)
        finally:
            self._process.kill()
            self._process.wait(30)
            self._log.close()


def send(bootstrap: str, count: int, at_ms: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 2})
    for number in range(count):
        producer.produce(ORDERS, b"%d" % number, partition=0, timestamp=at_ms)
    assert producer.flush(60) == 0


def read_and_commit(bootstrap: str, offset: int) -> None:
    """Reads what there is, and commits less, as a consumer does that is slow to work on it."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": SLOW,
            "enable.auto.commit": False,
            "log_level": 2,
        }
    )
    consumer.assign([TopicPartition(ORDERS, 0, 0)])
    assert len(consumer.consume(10, 60)) == 10
    consumer.commit(offsets=[TopicPartition(ORDERS, 0, offset)], asynchronous=False)
    consumer.close()


def scraped(cluster: ProcessCluster) -> list[str]:
    texts = []
    for node in cluster.nodes.values():
        if node.is_running:
            answer = httpx.get(f"http://{node.http}/metrics", timeout=30.0)
            assert answer.status_code == 200, answer.text
            texts.append(answer.text)
    return texts


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Prometheus, ProcessCluster]]:
    if shutil.which("prometheus") is None:
        pytest.skip("needs the Debian package prometheus")
    try:
        find_java()
    except JavaNotFound as missing:
        pytest.skip(str(missing))
    folder = tmp_path_factory.mktemp("prometheus")
    with ExitStack() as ends:
        cluster = ends.enter_context(ProcessCluster(folder / "cluster"))
        cluster.create_topic(READINGS)
        # First, because Spark takes longest to start.
        pipeline = RunningPipeline(folder, cluster.bootstrap)
        ends.callback(pipeline.close)
        pipeline.feed(b'{"celsius": 21.5}')
        nodes = [node.http for node in cluster.nodes.values()]
        prometheus = Prometheus(folder, {"penstock": nodes, "pipelines": [pipeline.address]})
        ends.callback(prometheus.close)
        script(prometheus, cluster, pipeline)
        yield prometheus, cluster


def script(prometheus: Prometheus, cluster: ProcessCluster, pipeline: RunningPipeline) -> None:
    bootstrap = cluster.bootstrap
    cluster.create_topic(ORDERS, partitions=3)
    (one, *_) = bootstrap.split(",")
    assert edited(one, "all", ("metrics", SET, "*"), ("interval.ms", SET, "100")) == 0
    old_ms = int(time.time() * 1000) - HOUR_MS
    send(bootstrap, 10, old_ms)
    read_and_commit(bootstrap, 2)
    begin(one)
    produce(bootstrap, TOPIC, ["one", "two"], 1)
    httpx.get(f"http://{cluster.nodes[1].http}/v1/topics/nowhere", timeout=30.0)
    wait_until("Prometheus is ready", prometheus.is_ready)
    with Worker(bootstrap, rejecting):
        # What grows must have been seen before.
        for query in (
            "penstock_queue_deliveries_total > 0",
            f'penstock_group_lag_records{{group="{SLOW}"}} > 0',
            'penstock_pipeline_rows_in_total{flow="clean"} > 0',
            "penstock_client_metric",
        ):
            wait_until(query, lambda query=query: prometheus.ask(query))  # type: ignore[misc]
        produce(bootstrap, TOPIC, ["bad"], 1)
        send(bootstrap, 20, old_ms)
        pipeline.feed(b"not JSON", b'{"celsius": 3.5}')
        letters = "penstock_pipeline_dead_letters_total > 0"
        wait_until("undecodable", lambda: prometheus.ask(letters))
        wait_until("dead", lambda: prometheus.ask("penstock_queue_dead_letters_total > 0"))
    victim = cluster.leader(ORDERS, 1)
    victim.kill()
    # A failover is under way, and the others answer.
    assert len(scraped(cluster)) == 2
    wait_until("lacking", lambda: prometheus.ask("penstock_partitions_under_replicated > 0"))


def filled_in(query: str) -> str:
    """As Grafana asks when all values are chosen."""
    return VARIABLE.sub(lambda found: INTERVALS.get(found[0], ".*"), query)


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda each: each.name)
def test_every_query_of_a_dashboard_answers_with_data(
    run: tuple[Prometheus, ProcessCluster], dashboard: Any
) -> None:
    prometheus, _ = run
    for query in dashboard.variables.values():
        found = LABEL_VALUES.fullmatch(query)
        assert found is not None
        assert prometheus.ask(f"count by ({found[2]}) ({filled_in(found[1])})"), query
    for panel in dashboard.panels:
        for query in panel.queries.values():
            what = f"{panel.title}: {filled_in(query)}"
            wait_until(what, lambda query=query: prometheus.ask(filled_in(query)), 30)  # type: ignore[misc]


@pytest.mark.parametrize("name", alerts())
def test_every_alert_answers_with_data(run: tuple[Prometheus, ProcessCluster], name: str) -> None:
    prometheus, _ = run
    query = str(alerts()[name]["expr"])
    if name not in FIRING:
        query = COMPARISON.sub("", query)
    wait_until(query, lambda: prometheus.ask(query), 60)


def test_the_figures_are_right(run: tuple[Prometheus, ProcessCluster]) -> None:
    prometheus, _ = run
    (lag,) = prometheus.ask(f'max by (group) (penstock_group_lag_records{{group="{SLOW}"}})')
    assert float(lag["value"][1]) == 28
    (age,) = prometheus.ask(f'max by (group) (penstock_group_lag_seconds{{group="{SLOW}"}})')
    assert 3_600 <= float(age["value"][1]) < 4_200
    (dead,) = prometheus.ask("sum(max_over_time(penstock_queue_dead_letters_total[10m]))")
    assert float(dead["value"][1]) == 1
    written = f'sum(max_over_time(penstock_topic_records_in_total{{topic="{ORDERS}"}}[10m]))'
    assert float(prometheus.ask(written)[0]["value"][1]) == 30
    labels = prometheus.ask("penstock_client_metric")[0]["metric"]
    assert labels["metric"].startswith("org.apache.kafka.")
    assert GROUP in {each["metric"]["group"] for each in prometheus.ask("penstock_queue_depth")}


def test_promtool_takes_what_nodes_show(run: tuple[Prometheus, ProcessCluster]) -> None:
    for text in scraped(run[1]):
        outcome = subprocess.run(
            ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=60
        )
        assert outcome.returncode == 0, outcome.stdout + outcome.stderr
