"""A small Spark session for commands that check or try a pipeline, silent on the terminal."""

import logging
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.pipelines.running.sessions import JAVA_OPTIONS, make_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER = "local[1]"
# What is over in seconds is compiled lightly and collected simply.
JAVA_FLAGS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.memory": "512m",
}
# pyspark writes each refusal of Spark's to stderr as JSON, besides raising it.
TALKATIVE = ("SQLQueryContextLogger", "DataFrameQueryContextLogger", "py4j")


@contextmanager
def light_session(
    name: str, settings: Mapping[str, str] | None = None, *, master: str = MASTER
) -> Iterator["SparkSession"]:
    """`settings` are the pipeline's and win over ours; raises JavaNotFound and RunRefused."""
    silence()
    given = dict(settings or {})
    flags = f"{JAVA_FLAGS} {given.pop(JAVA_OPTIONS, '')}".strip()
    with tempfile.TemporaryDirectory(prefix="penstock-", ignore_cleanup_errors=True) as folder:
        ours = SETTINGS | {"spark.sql.warehouse.dir": folder, JAVA_OPTIONS: flags}
        session = make_session(
            name, storage=Path(folder), master=master, settings={**ours, **given}
        )
        try:
            yield session
        finally:
            session.stop()


def silence() -> None:
    for name in TALKATIVE:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
