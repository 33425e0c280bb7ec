"""One way from an exception, while a dataset is built, to a problem with a place."""

from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from penstock.model.errors import Explained
from penstock.pipelines.building.spark_problems import problem_of
from penstock.pipelines.specification.problems import Place, SpecificationRefused

# What Spark, decoders, options, tables and archives refuse. Anything else is a fault of ours.
REFUSALS = (PySparkException, Py4JError, Explained)


@contextmanager
def refusing(place: Place, sql_place: Place | None = None) -> Iterator[None]:
    """What is refused inside is the specification's fault, at that place."""
    try:
        yield
    except SpecificationRefused:
        raise
    except REFUSALS as error:
        raise SpecificationRefused([problem_of(error, place, sql_place)]) from error
