"""Proves that the wheel is all that Spark needs, in an environment without this repository.

The data source is found unregistered, by spark-submit too; its shim needs no numba and no pyarrow.
"""

import json
import os
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.e2e.conftest import MakeTopic
from tests.e2e.processes import Broker
from tests.spark.conftest import Produce
from tests.spark.rig_server import JVM_FLAGS

ROOT = Path(__file__).resolve().parents[2]
INSTALLED = Path(sysconfig.get_path("purelib"))
JOB_TIMEOUT_S = 400
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


class Environment:
    """A virtual environment with the wheel; what it needs from outside is linked, not installed."""

    def __init__(self, folder: Path, wheel: Path, *, without: tuple[str, ...] = ()) -> None:
        self.python = folder / "bin" / "python"
        run([sys.executable, "-m", "venv", "--without-pip", str(folder)])
        site = Path(run([str(self.python), "-c", SITE]).strip())
        for path in INSTALLED.iterdir():
            if not path.name.startswith((*OURS, *without)) and path.suffix != ".pth":
                (site / path.name).symlink_to(path)
        installer = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        run([*installer, "--python", str(self.python), "install", "--no-deps", str(wheel)])
        self.site = site


SITE = "import sysconfig; print(sysconfig.get_path('purelib'))"


def run(words: list[str], **environment: str) -> str:
    """Run a program that has nothing of this repository on its path; its failure is the test's."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    said = subprocess.run(
        words,
        capture_output=True,
        text=True,
        timeout=JOB_TIMEOUT_S,
        env=kept | environment,
        cwd="/",
    )
    assert said.returncode == 0, f"{words}: {said.stdout[-1000:]} {said.stderr[-3000:]}"
    return said.stdout


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


def test_the_shims_are_found_without_numba_and_pyarrow(wheel: Path, tmp_path: Path) -> None:
    bare = Environment(tmp_path / "bare", wheel, without=HEAVY)
    for name in ("numba", "pyarrow"):
        assert not (bare.site / name).exists()
    said = run([str(bare.python), "-c", BLOCKED.format(heavy=HEAVY)])
    assert said.split() == ["penstock", "penstock_archiving", "penstock_table"]


def test_spark_submit_finds_the_data_source(
    wheel: Path,
    java_home: Path,
    broker: Broker,
    make_topic: MakeTopic,
    produce: Produce,
    tmp_path: Path,
) -> None:
    full = Environment(tmp_path / "full", wheel)
    topic, out = make_topic(), make_topic()
    produce(topic, [b"one", b"two"])
    job = tmp_path / "job.py"
    job.write_text(JOB)
    submit = [str(full.site / "pyspark" / "bin" / "spark-submit"), "--master", "local[1]"]
    submit += ["--conf", "spark.ui.enabled=false", "--name", "submitted", str(job)]
    said = run(
        [*submit, broker.bootstrap, topic, out],
        JAVA_HOME=str(java_home),
        SPARK_HOME=str(full.site / "pyspark"),
        SPARK_LOCAL_IP="127.0.0.1",
        SPARK_SUBMIT_OPTS=JVM_FLAGS,
        PYSPARK_PYTHON=str(full.python),
    )
    found = json.loads(said.splitlines()[-1])
    assert all(Path(home).is_relative_to(full.site) for home in found["homes"])
    assert found["values"] == ["ONE", "TWO"]
    assert found["application"] == "submitted"
