"""Proves that the IoT pipeline survives its machines.

It runs on a real standalone Spark cluster (a master and two workers) against three brokers, while
sensors send. A worker is killed with its executor, then a broker. In the end the archive holds
every reading exactly once, and the windows and alerts are those that plain Python computes. Before
that, a worker whose Python lacks the package is named.
"""

import json
import shutil
import signal
import subprocess
import venv
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.parquet
import pytest

import penstock
from penstock.cli.demo.expectation import Window
from penstock.client import Consumer
from penstock.pipelines.templates.iot import anomalies
from tests.e2e.cluster_nodes import Cluster
from tests.e2e.processes import clean_environment, command
from tests.spark.pipelines.iot_load import Archived, Load, iot_expectation
from tests.spark.rig_server import JVM_FLAGS
from tests.spark.standalone import Daemon, StandaloneCluster
from tests.waiting import wait_until

# Ten processes work for minutes. Executors that die are in tests/spark/test_faults.py too, brokers
# that die under queries as well, and the pipeline itself is run by the demonstration.
pytestmark = [pytest.mark.soak, pytest.mark.xdist_group("spark-processes")]

SPECIFICATION = Path(anomalies.__file__).with_name("iot.yaml")
TOPICS = {"readings": 3, "alerts": 2, "readings-dead": 1}
WINDOW_S, LATENESS_S = 10, 600
# Of the sensors' time; the load makes about twenty seconds of it in one.
PAUSE_S = 0.05
SENSORS, READINGS_PER_STEP = 12, 4
MORE_READINGS = 2_000
# Each of these waits is for something that takes seconds, on cores that other tests use too.
WAIT_S = 300.0
STOP_S = 120.0
LOG_TAIL = 6_000


class PipelineRun:
    """`penstock pipeline run` in a process of its own, as an operator starts it."""

    def __init__(
        self, folder: Path, master: str, bootstrap: str, *, python: Path | None = None
    ) -> None:
        """`python` is what the workers run tasks with, if not what this process is run by."""
        folder.mkdir(exist_ok=True)
        self.lake = folder / "lake"
        self.log_path = folder / "run.log"
        self._rows_of_files: dict[str, int] = {}
        shutil.copytree(SPECIFICATION.parent, folder / "iot")
        words = ["pipeline", "run", str(folder / "iot" / SPECIFICATION.name), "--master", master]
        parameters = {
            "brokers": bootstrap,
            "lake": str(self.lake),
            "window": f"{WINDOW_S} seconds",
            "lateness": f"{LATENESS_S} seconds",
            "interval": "1 second",
            "alerts_interval": "1 second",
            "rejects_interval": "1 second",
        }
        settings = {
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.executor.extraJavaOptions": JVM_FLAGS,
            "spark.driver.extraJavaOptions": JVM_FLAGS,
        }
        if python is not None:
            settings["spark.pyspark.python"] = str(python)
        for name, value in parameters.items():
            words += ["--parameter", f"{name}={value}"]
        for name, value in settings.items():
            words += ["--conf", f"{name}={value}"]
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                command(*words),
                stdout=log,
                stderr=subprocess.STDOUT,
                env=clean_environment({"SPARK_LOCAL_IP": "127.0.0.1"}),
            )

    def wait_until(self, what: str, condition: Callable[[], bool]) -> None:
        def reached() -> bool:
            assert self.process.poll() is None, f"the run ended: {self.log()}"
            return condition()

        wait_until(what, reached, WAIT_S)

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")[-LOG_TAIL:]

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_S)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(STOP_S)

    def rows(self, table: str) -> list[dict[str, object]]:
        """By the library of the format, not by ours."""
        files = self._files(table)
        found: list[dict[str, object]] = []
        for file in files:
            found += pyarrow.parquet.read_table(file).to_pylist()
        return found

    def count(self, table: str) -> int:
        """Asked again and again while Spark needs the cores, so no file is opened twice."""
        files = self._files(table)
        for file in files:
            if file not in self._rows_of_files:
                self._rows_of_files[file] = pyarrow.parquet.read_metadata(file).num_rows
        return sum(self._rows_of_files[file] for file in files)

    def _files(self, table: str) -> list[str]:
        path = str(self.lake / table)
        if not deltalake.DeltaTable.is_deltatable(path):
            return []
        return [uri.removeprefix("file://") for uri in deltalake.DeltaTable(path).file_uris()]

    def archive(self) -> list[Archived]:
        return sorted(
            Archived(
                partition=row["partition"],
                offset=row["offset"],
                sensor=row["sensor"],
                number=row["number"],
                temperature=row["temperature"],
                at_us=microseconds(row["at"]),
            )
            for row in self.rows("readings")
        )

    def windows(self) -> list[Window]:
        return [
            Window(
                begins_us=microseconds(row.pop("begins")),
                ends_us=microseconds(row.pop("ends")),
                **row,
            )
            for row in self.rows("averages")
        ]


def microseconds(time: object) -> int:
    value = pa.scalar(time, pa.timestamp("us", "UTC")).value
    assert isinstance(value, int)
    return value


class Alerts:
    """What a controller of the group has heard so far."""

    def __init__(self, consumer: Consumer) -> None:
        self.heard: set[tuple[str, int]] = set()
        self._consumer = consumer

    def listen(self) -> set[tuple[str, int]]:
        records = self._consumer.poll(0.1)
        for record in records:
            alert = json.loads(record.value or b"{}")
            self.heard.add((alert["sensor"], alert["number"]))
        self._consumer.done(records)
        return self.heard


@pytest.mark.timeout(1200)
def test_a_worker_and_a_broker_die_while_the_pipeline_runs(java_home: Path, tmp_path: Path) -> None:
    expectation = iot_expectation(window_s=WINDOW_S, lateness_s=LATENESS_S)
    with ExitStack() as stack:
        spark = StandaloneCluster(tmp_path / "spark", java_home=java_home)
        stack.callback(spark.close)
        spark.launch()
        brokers = stack.enter_context(Cluster(tmp_path))
        for topic, partitions in TOPICS.items():
            brokers.create_topic(topic, partitions=partitions)
        brokers.wait_until_healthy(*TOPICS)
        load = Load(
            brokers.bootstrap,
            "readings",
            sensors=SENSORS,
            readings_per_step=READINGS_PER_STEP,
            pause_s=PAUSE_S,
            expectation=expectation,
        )
        load.start()
        stack.callback(load.end)
        spark.await_ready()
        check_that_a_worker_without_the_package_is_named(spark, brokers, tmp_path / "bare")
        run = PipelineRun(tmp_path / "run", spark.address, brokers.bootstrap)
        stack.callback(run.close)
        run.wait_until("an archive", lambda: run.count("readings") > 0)

        await_task(run, spark.workers[1])
        await_task(run, spark.workers[0])
        spark.workers[0].kill()
        await_more_readings(run, load)
        run.wait_until("one worker", lambda: alive_workers(spark) == 1)

        brokers.leader("readings").kill()
        await_more_readings(run, load)

        load.end()
        closed = expectation.closed_windows()
        run.wait_until("all readings", lambda: run.count("readings") >= load.sent)
        run.wait_until("all windows", lambda: run.count("averages") >= len(closed))
        # Made only now: a member of a group that is not asked for minutes is taken for dead.
        alerts = Alerts(
            stack.enter_context(
                Consumer("alerts", group="controllers", bootstrap=brokers.bootstrap)
            )
        )
        run.wait_until("all alerts", lambda: alerts.listen() >= expectation.alerts)
        assert run.stop() == 0, run.log()

    assert run.archive() == sorted(load.acknowledged)
    windows = run.windows()
    assert len(windows) == len(closed) > SENSORS
    assert all(window.is_like(closed[window.begins_us, window.sensor]) for window in windows)
    assert alerts.heard == expectation.alerts != set()


def check_that_a_worker_without_the_package_is_named(
    spark: StandaloneCluster, brokers: Cluster, folder: Path
) -> None:
    """With a Python that has nothing installed; here, because a cluster is slow to start."""
    venv.create(folder / "python", symlinks=True)
    python = folder / "python" / "bin" / "python"
    run = PipelineRun(folder, spark.address, brokers.bootstrap, python=python)
    try:
        assert run.process.wait(WAIT_S) == 1, run.log()
    finally:
        run.close()
    said = run.log().splitlines()[-1]
    install = f"pip install 'penstock-mq[spark-worker]=={penstock.__version__}' there for {python}."
    assert said.startswith("penstock: The worker ")
    assert said.endswith(f" does not have the Python package penstock: {install}")
    assert "Traceback" not in run.log()
    assert not (run.lake / "readings").exists()


def await_task(run: PipelineRun, worker: Daemon) -> None:
    """Until it is in the middle of one, which is when its Python uses a core."""
    used = [worker.task_cpu_s()]

    def has_begun() -> bool:
        used.append(worker.task_cpu_s())
        return used[-1] > used[-2]

    run.wait_until(f"a task on {worker.name}", has_begun)


def alive_workers(spark: StandaloneCluster) -> int | None:
    """None where the master takes its time to answer."""
    try:
        return int(spark.state()["aliveworkers"])
    except OSError:
        return None


def await_more_readings(run: PipelineRun, load: Load) -> None:
    """Until the table holds readings that were sent from now on."""
    wanted = load.sent + MORE_READINGS
    run.wait_until(f"{wanted} archived readings", lambda: run.count("readings") >= wanted)
