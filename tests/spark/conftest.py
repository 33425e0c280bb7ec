"""Fixtures: a plain Spark session and a broker for all tests of a worker."""

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pyspark
import pytest
from benchmarks.spark_connector import Connector, ConnectorMissing
from benchmarks.spark_connector import connector as fetch_connector
from pyspark.sql import SparkSession

from penstock.spark.java import JavaNotFound, find_java
from tests.e2e.conftest import broker, group, make_broker, make_topic
from tests.e2e.processes import Broker
from tests.otlp_collector import OtlpCollector, otlp_collector
from tests.spark import class_archive, rig, spark_home
from tests.spark.class_archive import COMPILER_FLAGS, JVM_FLAGS
from tests.spark.rig_server import SparkServer

__all__ = ["broker", "group", "make_broker", "make_topic"]

HERE = Path(__file__).resolve().parent
PIPELINES = HERE / "pipelines"
# The first query of a session compiles for ten seconds, on cores that other tests use too; this
# and all shorter limits only end what hangs.
TEST_TIMEOUT_S = 600

Produce = Callable[..., None]


# Before xdist looks at the marks, which it does at the same hook.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One worker runs all tests that share a JVM; those that bring their own need not wait."""
    for item in items:
        if str(item.path).startswith(f"{HERE}{os.sep}"):
            if item.get_closest_marker("xdist_group") is None:
                item.add_marker(pytest.mark.xdist_group(group_of(item)))
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(TEST_TIMEOUT_S))


def group_of(item: pytest.Item) -> str:
    """The tests of a group take turns; one group for all would take longer than all the others."""
    assert isinstance(item, pytest.Function)
    if "spark" in item.fixturenames:
        return "spark-pipelines" if item.path.is_relative_to(PIPELINES) else "spark"
    return "spark-server" if "spark_server" in item.fixturenames else "spark-processes"


@pytest.fixture(scope="session")
def java_home() -> Path:
    """Also says in the environment, for every Spark that a test starts, how to start fast."""
    try:
        found = find_java()
    except JavaNotFound as missing:
        pytest.skip(str(missing))
    os.environ.setdefault("JAVA_HOME", str(found))
    os.environ["SPARK_HOME"] = str(spark_home.prepare())
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["SPARK_SUBMIT_OPTS"] = JVM_FLAGS
    os.environ["SPARK_LAUNCHER_OPTS"] = COMPILER_FLAGS
    class_archive.prepare(found)
    return found


@pytest.fixture(scope="session")
def collector() -> Iterator[OtlpCollector]:
    """Where tasks send their traces, if a query has switched them on."""
    with otlp_collector() as collector:
        # Spark's Python processes get the environment that its JVM was started with.
        os.environ.update(collector.environment)
        yield collector


@pytest.fixture(scope="session")
def spark(
    java_home: Path, collector: OtlpCollector, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    """A session as users build it: nothing of ours is set but what keeps a test run small."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .appName("penstock tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture
def produce(broker: Broker) -> Produce:
    """`produce(topic, records, codec=...)` on the shared broker; returns once acknowledged."""

    def send(topic: str, records: list[rig.Record | bytes], **settings: object) -> None:
        rig.produce(broker.bootstrap, topic, records, **settings)

    return send


@pytest.fixture(scope="session")
def connector() -> Connector | str:
    """Spark's own Kafka connector, or why it can't be had here."""
    try:
        found = fetch_connector()
    except ConnectorMissing as missing:
        return str(missing)
    if found.version != pyspark.__version__:
        warnings.warn(
            f"Maven Central has no Kafka connector for Spark {pyspark.__version__}: "
            f"the one for {found.version} stands in.",
            stacklevel=1,
        )
    return found


@pytest.fixture(scope="session")
def spark_server(
    java_home: Path, connector: Connector | str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkServer]:
    """A server for Connect with two executors, for all that the plain session can't show."""
    jars = () if isinstance(connector, str) else connector.jars
    folder = tmp_path_factory.mktemp("spark-server")
    with SparkServer(folder, java_home=java_home, jars=jars) as server:
        yield server


@pytest.fixture(scope="session")
def remote_spark(spark_server: SparkServer) -> Iterator[SparkSession]:
    """A session of that server. Give it expressions as text: functions belong to the plain one."""
    session = spark_server.connect()
    yield session
    session.stop()


@pytest.fixture(scope="session")
def jvm_spark(remote_spark: SparkSession, connector: Connector | str) -> SparkSession:
    """The same session, for tests that can't do without Spark's own Kafka connector."""
    if isinstance(connector, str):
        pytest.skip(connector)
    return remote_spark
