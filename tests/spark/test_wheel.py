"""Proves that the wheel is all that users need, in an environment without this repository.

The command, the demonstration, a pipeline and the pytest fixtures run from it. The data source is
found unregistered, by spark-submit too; its shim needs no numba and no pyarrow.
"""

import json
import os
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import penstock
from tests.documents import ROOT
from tests.e2e.conftest import MakeTopic
from tests.e2e.processes import Broker
from tests.spark.conftest import Produce
from tests.spark.rig_server import JVM_FLAGS

INSTALLED = Path(sysconfig.get_path("purelib"))
JOB_TIMEOUT_S = 400
# Variables that would lead a program to this repository, or to the Python that runs the tests.
OUTSIDE = ("PYTHON", "PYSPARK_", "PENSTOCK_", "SPARK_HOME")
# Ours, in whatever form it is installed for development.
OURS = ("penstock", "_editable_impl_penstock", "pyspark_penstock", "__pycache__")
# What the extra for Spark brings besides pyspark.
HEAVY = (
    "deltalake",
    "fastavro",
    "google",
    "llvmlite",
    "numba",
    "numpy",
    "pandas",
    "protobuf",
    "pyarrow",
    "pyiceberg",
)
JOB = """
import json, sys
import penstock, pyspark_penstock
from pyspark.sql import SparkSession

bootstrap, topic, out = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
spark.sql(f\"\"\"
    CREATE TEMPORARY VIEW topic USING penstock
    OPTIONS (`kafka.bootstrap.servers` '{bootstrap}', subscribe '{topic}')
\"\"\")
rows = spark.sql("SELECT upper(CAST(value AS STRING)) AS value FROM topic")
sink = rows.write.format("penstock").mode("append").option("topic", out)
sink.option("kafka.bootstrap.servers", bootstrap).save()
reader = spark.read.format("penstock").option("kafka.bootstrap.servers", bootstrap)
found = reader.option("subscribe", out).load().selectExpr("CAST(value AS STRING)").collect()
print(json.dumps({
    "homes": [penstock.__file__, pyspark_penstock.__file__],
    "values": [row.value for row in found],
    "application": spark.sparkContext.appName,
}))
"""
BLOCKED = """
import sys
import pyspark_penstock, pyspark_penstock_archiving, pyspark_penstock_table
found = [name for name in {heavy} if name in sys.modules]
assert not found, found
for module in (pyspark_penstock, pyspark_penstock_archiving, pyspark_penstock_table):
    print(module.DefaultSource.name())
"""

METADATA = """
import importlib.metadata, json, penstock
(ours,) = [one for one in importlib.metadata.distributions() if "penstock" in one.name]
print(json.dumps({
    "home": penstock.__file__, "name": ours.name, "version": ours.version,
    "others": [text for text in ours.requires if "penstock" in text],
    "worker": [text for text in ours.requires if "fastavro" in text and "'spark'" in text],
}))
"""
PIPELINE = """
pipeline: homes
parameters: {brokers: {}, topic: {}}
settings: {spark.sql.shuffle.partitions: 1}
sources:
  records: {topic: "${topic}", brokers: "${brokers}", decode: text}
steps:
  placed: {function: "steps.py:placed"}
flows:
  table: {from: placed, to: {parquet: lake/placed}}
"""
# Where the driver and the workers of Spark have the package from.
STEPS = """
import penstock
from pyspark.sql import functions


@functions.udf("string")
def home():
    import penstock

    return penstock.__file__


def placed(records):
    driver = functions.lit(penstock.__file__)
    return records.select("text", driver.alias("driver"), home().alias("worker"))
"""
FIXTURES = """
import penstock
from penstock.client import Consumer, Producer


def echo(bootstrap):
    with Producer(bootstrap) as producer:
        producer.send("orders", value=b"two apples")
    with Consumer("orders", group="kitchen", bootstrap=bootstrap) as consumer:
        return next(iter(consumer)).value


def test_a_broker_of_its_own(penstock_broker):
    penstock_broker.create_topic("orders")
    assert echo(penstock_broker.bootstrap) == b"two apples"


def test_a_broker_for_the_session(penstock_session_broker):
    penstock_session_broker.create_topic("orders")
    assert echo(penstock_session_broker.bootstrap) == b"two apples"


def test_where_the_package_is_from():
    assert penstock.__file__ == HOME
"""

Said = subprocess.CompletedProcess[str]


class Environment:
    """A virtual environment with the wheel; what it needs from outside is linked, not installed."""

    def __init__(self, folder: Path, wheel: Path, *, without: tuple[str, ...] = ()) -> None:
        self.python = folder / "bin" / "python"
        run([sys.executable, "-m", "venv", "--without-pip", str(folder)])
        site = Path(run([str(self.python), "-c", SITE]).stdout.strip())
        for path in INSTALLED.iterdir():
            if not path.name.startswith((*OURS, *without)) and path.suffix != ".pth":
                (site / path.name).symlink_to(path)
        installer = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        run([*installer, "--python", str(self.python), "install", "--no-deps", str(wheel)])
        self.site = site
        self.home = site / "penstock" / "__init__.py"

    def command(self, *words: str, folder: Path | None = None) -> Said:
        """Run `penstock` as it was installed."""
        return run([str(self.python.with_name("penstock")), *words], folder=folder)


SITE = "import sysconfig; print(sysconfig.get_path('purelib'))"


def run(words: list[str], *, folder: Path | None = None, **environment: str) -> Said:
    """Run a program that has nothing of this repository on its path; its failure is the test's."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OUTSIDE)}
    said = subprocess.run(
        words,
        capture_output=True,
        text=True,
        timeout=JOB_TIMEOUT_S,
        env=kept | environment,
        cwd=folder or "/",
    )
    assert said.returncode == 0, f"{words}: {said.stdout[-1000:]} {said.stderr[-3000:]}"
    return said


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--outdir", str(folder), str(ROOT)]
    if find_spec("hatchling") is not None:
        # Otherwise it is fetched from an index, which may be slow or out of reach.
        build.append("--no-isolation")
    run(build)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Shared by tests that change nothing in it."""
    return Environment(tmp_path_factory.mktemp("installed") / "full", wheel)


def test_the_distribution_is_penstock_mq_and_package_and_command_are_penstock(
    installed: Environment,
) -> None:
    """Nothing else there provides the package, and an extra that contains another asks for nothing
    of another name."""
    assert installed.command("--version").stdout == f"penstock {penstock.__version__}\n"
    found = json.loads(run([str(installed.python), "-c", METADATA]).stdout)
    assert len(found.pop("worker")) == 1, "the extra for Spark contains that for its workers"
    assert found == {
        "home": str(installed.home),
        "name": "penstock-mq",
        "version": penstock.__version__,
        "others": [],
    }


@pytest.mark.slow
def test_the_fixtures_serve_the_tests_of_others(installed: Environment, tmp_path: Path) -> None:
    (tmp_path / "test_orders.py").write_text(FIXTURES.replace("HOME", repr(str(installed.home))))
    words = [str(installed.python), "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    assert "3 passed" in run(words, folder=tmp_path).stdout


@pytest.mark.slow
def test_the_shims_are_found_without_numba_and_pyarrow(wheel: Path, tmp_path: Path) -> None:
    bare = Environment(tmp_path / "bare", wheel, without=HEAVY)
    for name in ("numba", "pyarrow"):
        assert not (bare.site / name).exists()
    said = run([str(bare.python), "-c", BLOCKED.format(heavy=HEAVY)])
    assert said.stdout.split() == ["penstock", "penstock_archiving", "penstock_table"]


@pytest.mark.slow
def test_the_demo_ends_with_a_summary(installed: Environment) -> None:
    """Without Spark: the demonstration on Spark is run in tests/spark/pipelines/test_demo.py."""
    said = installed.command("demo", "--no-spark", "--seconds", "3", "--rate", "500", "--json")
    assert said.stderr == ""
    summary = json.loads(said.stdout)
    assert summary["passed"] is True
    assert summary["produced"] == sum(summary["consumed"].values()) - summary["redelivered"] > 0


@pytest.mark.parametrize("template", ["iot", "starter"])
def test_the_templates_of_pipelines_are_there_whole(
    installed: Environment, template: str, tmp_path: Path
) -> None:
    example = () if template == "starter" else ("--example", template)
    installed.command("pipeline", "init", "mine", *example, folder=tmp_path)
    given = ROOT / "src" / "penstock" / "pipelines" / "templates" / template
    files = [path for path in given.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert files
    made = {path.relative_to(given): tmp_path / "mine" / path.relative_to(given) for path in files}
    assert [str(name) for name, path in made.items() if not path.is_file()] == []
    assert all(path.read_bytes() == (given / name).read_bytes() for name, path in made.items())


@pytest.mark.slow
def test_a_pipeline_runs_with_drivers_and_workers_of_the_wheel(
    installed: Environment,
    java_home: Path,
    broker: Broker,
    make_topic: MakeTopic,
    produce: Produce,
    tmp_path: Path,
) -> None:
    topic = make_topic()
    produce(topic, [b"one", b"two"])
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    (tmp_path / "steps.py").write_text(STEPS)
    given = ("-p", f"brokers={broker.bootstrap}", "-p", f"topic={topic}")
    installed.command("pipeline", "run", "pipeline.yaml", "--once", *given, folder=tmp_path)
    files = (tmp_path / "lake" / "placed").rglob("*.parquet")
    rows = [row for file in files for row in pq.read_table(file).to_pylist()]
    assert sorted(row["text"] for row in rows) == ["one", "two"]
    assert {row[part] for row in rows for part in ("driver", "worker")} == {str(installed.home)}


@pytest.mark.slow
def test_spark_submit_finds_the_data_source(
    installed: Environment,
    java_home: Path,
    broker: Broker,
    make_topic: MakeTopic,
    produce: Produce,
    tmp_path: Path,
) -> None:
    topic, out = make_topic(), make_topic()
    produce(topic, [b"one", b"two"])
    job = tmp_path / "job.py"
    job.write_text(JOB)
    submit = [str(installed.site / "pyspark" / "bin" / "spark-submit"), "--master", "local[1]"]
    submit += ["--conf", "spark.ui.enabled=false", "--name", "submitted", str(job)]
    said = run(
        [*submit, broker.bootstrap, topic, out],
        JAVA_HOME=str(java_home),
        SPARK_HOME=str(installed.site / "pyspark"),
        SPARK_LOCAL_IP="127.0.0.1",
        SPARK_SUBMIT_OPTS=JVM_FLAGS,
        PYSPARK_PYTHON=str(installed.python),
    )
    found = json.loads(said.stdout.splitlines()[-1])
    assert all(Path(home).is_relative_to(installed.site) for home in found["homes"])
    assert found["values"] == ["ONE", "TWO"]
    assert found["application"] == "submitted"
