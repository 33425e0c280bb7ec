"""The Spark session of a run, whose own talk goes to files instead of the user's terminal."""

import logging
import os
import signal
import threading
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.pipelines.running.refusals import RunRefused
from penstock.spark.home import make_home
from penstock.spark.sessions import RECOMMENDED, needs_java, prepare, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG = "spark.log"
OUTPUT = "spark.out"
LOG_SETTINGS = "log4j2.properties"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
MASTER = "spark.master"
PYTHON = "spark.pyspark.python"
HOME = "SPARK_HOME"
HOME_FOLDER = "spark-home"
DEFAULT_MASTER = "local[*]"
LOCAL = "local"
LOOPBACK = "127.0.0.1"
# Each micro-batch of a query with state runs that many tasks, most of them empty.
SHUFFLE_PARTITIONS_LOCAL = 4
STOP_TIMEOUT = "60s"
TALKATIVE = ("py4j", "SQLQueryContextLogger", "DataFrameQueryContextLogger")

# Warnings that tell a user of Penstock nothing are left out.
LOG4J = """\
status = off
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {log}
appender.file.filePattern = {log}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd'T'HH:mm:ss.SSSX}}{{UTC}} %p %c{{1}}: %m%n%ex
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 2
"""


def make_session(
    name: str,
    *,
    storage: Path,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> "SparkSession":
    """A session whose log is `<storage>/spark.log`; `settings` win over ours.

    Raises JavaNotFound, or RunRefused where Spark does not start.
    """
    from pyspark.errors import PySparkException

    given = dict(settings or {})
    chosen_master = master or given.get(MASTER) or DEFAULT_MASTER
    storage.mkdir(parents=True, exist_ok=True)
    silence_loggers()
    everything = settings_of(chosen_master, storage, given)
    try:
        if needs_java(None):
            prepare_python(given, os.environ)
            prepare(os.environ)
            prepare_local(chosen_master, os.environ)
            with faster_home(chosen_master, storage, os.environ):
                _launch(name, chosen_master, everything, storage / OUTPUT)
        with keeping_interrupts():
            return session(name, master=chosen_master, settings=everything)
    except (PySparkException, _py4j_error()) as error:
        from penstock.pipelines.running.failures import sentence_of

        raise RunRefused(
            f"Spark did not start on {chosen_master}: {sentence_of(error)} "
            f"({storage / LOG} and {storage / OUTPUT} say more.)"
        ) from error


def settings_of(master: str, storage: Path, given: Mapping[str, str]) -> dict[str, str]:
    """All settings of the session; the file that tells Spark where to log is written here."""
    log_settings = storage / LOG_SETTINGS
    log_settings.write_text(LOG4J.format(log=storage / LOG))
    ours = RECOMMENDED | {
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.stopTimeout": STOP_TIMEOUT,
    }
    if is_local(master):
        ours["spark.sql.shuffle.partitions"] = str(SHUFFLE_PARTITIONS_LOCAL)
    options = f"-Dlog4j2.configurationFile={log_settings.absolute().as_uri()}"
    if JAVA_OPTIONS in given:
        options = f"{options} {given[JAVA_OPTIONS]}"
    return ours | dict(given) | {JAVA_OPTIONS: options}


def is_local(master: str) -> bool:
    """Whether the tasks run in the driver itself; `local-cluster` has executors."""
    return master == LOCAL or master.startswith(f"{LOCAL}[")


def prepare_local(master: str, environment: MutableMapping[str, str]) -> None:
    """A Spark that nobody else uses is reached by nobody else."""
    if is_local(master):
        environment.setdefault("SPARK_LOCAL_IP", LOOPBACK)


@contextmanager
def faster_home(
    master: str, storage: Path, environment: MutableMapping[str, str]
) -> Iterator[None]:
    """Python processes of a local Spark start faster, unless the user has a Spark of their own."""
    if HOME in environment or not is_local(master):
        yield
        return
    with suppress(OSError):
        environment[HOME] = str(make_home(storage.absolute() / HOME_FOLDER))
    try:
        yield
    finally:
        environment.pop(HOME, None)


def prepare_python(given: Mapping[str, str], environment: MutableMapping[str, str]) -> None:
    """Only spark-submit reads this setting; PySpark itself goes by the environment."""
    if PYTHON in given:
        environment["PYSPARK_PYTHON"] = given[PYTHON]


@contextmanager
def keeping_interrupts() -> Iterator[None]:
    """PySpark takes Ctrl-C for itself and cancels jobs; what it means is for our caller to say."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)


def silence_loggers() -> None:
    """We report what goes wrong, in a sentence; these would print tracebacks and JSON too."""
    for name in TALKATIVE:
        logging.getLogger(name).setLevel(logging.CRITICAL)


def _launch(name: str, master: str, settings: Mapping[str, str], output: Path) -> None:
    """Start the JVM with its output in a file: some of it is written before any log is set up."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        return
    configuration = SparkConf(loadDefaults=False).setMaster(master).setAppName(name)
    configuration.setAll(list(settings.items()))
    with output.open("wb") as sink:
        # In a session of its own it does not get the signals that ask us to end after the batch.
        how = {"stdout": sink, "stderr": sink, "start_new_session": True}
        gateway = launch_gateway(configuration, popen_kwargs=how)  # type: ignore[no-untyped-call]
    SparkContext._ensure_initialized(gateway=gateway)


def _py4j_error() -> type[Exception]:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    found: type[Exception] = Py4JError
    return found
