"""A Spark session with what is good to have for topics as DataFrames."""

import os
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.spark.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECOMMENDED = {
    # Rows travel between Spark and Python in columns, for toPandas and for plain Python functions.
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # `where("offset >= 100")` then narrows what is fetched, not only what is shown.
    "spark.sql.python.filterPushdown.enabled": "true",
    # The state of windows and joins lives outside the heap of the JVM, and a checkpoint holds what
    # changed in it instead of all of it.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
CHECKPOINTS = "spark.sql.streaming.checkpointLocation"
# spark-submit starts the JVM first and tells Python where it listens.
GATEWAY_PORT = "PYSPARK_GATEWAY_PORT"


def session(
    name: str = "penstock",
    *,
    master: str | None = None,
    remote: str | None = None,
    checkpoints: str | Path | None = None,
    settings: Mapping[str, str] | None = None,
) -> "SparkSession":
    """The session to work with; the one that is active already, if there is one.

    `master` is Spark's, such as "local[4]"; without it Spark decides (all cores of this machine, or
    what spark-submit was told). `remote` is the address of a Spark Connect server instead, such as
    "sc://host:15002". `checkpoints` is the folder in which streaming queries keep their progress,
    each under its query name: a query that is named starts again where it stopped. `settings` are
    any of Spark's and win over ours.

    Raises JavaNotFound, with what to install, where Spark has no Java to run on.
    """
    if master is not None and remote is not None:
        raise ValueError("A session has either a master or a remote server, not both.")
    from pyspark.sql import SparkSession

    if needs_java(remote):
        prepare(os.environ)
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    if remote is not None:
        builder = builder.remote(remote)
    for key, value in chosen(checkpoints, settings or {}).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def needs_java(remote: str | None) -> bool:
    """Whether this process is the one that starts the JVM."""
    return remote is None and "SPARK_REMOTE" not in os.environ and GATEWAY_PORT not in os.environ


def prepare(environment: MutableMapping[str, str]) -> None:
    """Say in the environment, which Spark's JVM inherits, where Java and Python are."""
    environment["JAVA_HOME"] = str(find_java(environment))
    # Without it Spark's workers run `python3` of PATH, which may be one without our packages.
    environment.setdefault("PYSPARK_PYTHON", sys.executable)


def chosen(checkpoints: str | Path | None, settings: Mapping[str, str]) -> dict[str, str]:
    """All settings of a session: ours, then the folder for checkpoints, then the caller's."""
    folder = {} if checkpoints is None else {CHECKPOINTS: str(checkpoints)}
    return RECOMMENDED | folder | dict(settings)
