"""Topics as DataFrames: what a Spark job imports.

The data source itself needs no import: `spark.read.format("penstock")` finds it. Everything here is
loaded when it is first used, because Spark imports this package in each of its workers.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.spark.java import JavaNotFound, find_java
    from penstock.spark.reading.stream_progress import offsets_behind
    from penstock.spark.sessions import session
    from penstock.spark.values import decode
    from penstock.spark.values.dead_letters import dead_letters, write_dead_letters
    from penstock.spark.writing.updates import write_updates

__all__ = [
    "JavaNotFound",
    "dead_letters",
    "decode",
    "find_java",
    "offsets_behind",
    "session",
    "write_dead_letters",
    "write_updates",
]

HOMES = {
    "JavaNotFound": "penstock.spark.java",
    "dead_letters": "penstock.spark.values.dead_letters",
    "decode": "penstock.spark.values",
    "find_java": "penstock.spark.java",
    "offsets_behind": "penstock.spark.reading.stream_progress",
    "session": "penstock.spark.sessions",
    "write_dead_letters": "penstock.spark.values.dead_letters",
    "write_updates": "penstock.spark.writing.updates",
}


def __getattr__(name: str) -> object:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
