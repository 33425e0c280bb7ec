"""Checks a pipeline without data and without a broker: every dataset, every flow, all at once.

Each dataset is built on sources without rows, so that Spark itself judges schemas, SQL, conditions
and the rules of streaming. What does not depend on each other is checked whatever else is wrong.
"""

from collections.abc import Iterable, Sequence

from pyspark.sql import DataFrame, SparkSession

from penstock.pipelines.building.blank_reader import BlankReader
from penstock.pipelines.building.datasets import Datasets
from penstock.pipelines.checking.flows import flow_problems
from penstock.pipelines.specification.model import REJECTED, UNDECODABLE, Flow, Pipeline
from penstock.pipelines.specification.problems import Place, Problem, SpecificationRefused


def check(pipeline: Pipeline, spark: SparkSession) -> list[Problem]:
    """All problems that can be found offline, in the order of the file."""
    return Checking(pipeline, spark).problems()


class Checking:
    """One check; it goes on with a dataset as far as its columns can be known."""

    def __init__(self, pipeline: Pipeline, spark: SparkSession) -> None:
        self._pipeline = pipeline
        self._spark = spark
        self._datasets = Datasets(pipeline, spark, BlankReader(spark), self._note)
        self._found: list[Problem] = []
        # Datasets whose columns can't be known, and those with something wrong on their way.
        self._unknown: set[str] = set()
        self._doubtful: set[str] = set()

    def problems(self) -> list[Problem]:
        for name in (*self._pipeline.sources, *self._pipeline.steps):
            self._check_dataset(name)
        for flow in self._pipeline.flows.values():
            is_doubtful = self._owner(flow.input) in self._doubtful
            frame = self._frame(flow)
            self._found += flow_problems(flow, frame, self._spark, is_doubtful=is_doubtful)
        return in_file_order(dict.fromkeys(self._found))

    def _note(self, dataset: str, problems: Sequence[Problem]) -> None:
        """A wrong rule or watermark, which changes no columns."""
        self._found += problems
        self._doubtful.add(dataset)

    def _check_dataset(self, name: str) -> None:
        inputs = {self._owner(one) for one in self._inputs(name)}
        if inputs & self._doubtful:
            self._doubtful.add(name)
        if inputs & self._unknown:
            self._unknown.add(name)
            return
        try:
            self._datasets.frame(name)
        except SpecificationRefused as refused:
            self._found += refused.problems
            self._unknown.add(name)

    def _frame(self, flow: Flow) -> DataFrame | None:
        if self._owner(flow.input) in self._unknown:
            return None
        try:
            return self._datasets.frame(flow.input)
        except SpecificationRefused as refused:
            self._found += refused.problems
            return None

    def _inputs(self, name: str) -> tuple[str, ...]:
        step = self._pipeline.steps.get(name)
        return () if step is None else step.inputs

    def _owner(self, name: str) -> str:
        """The declared dataset that a side dataset belongs to."""
        if name in self._pipeline.sources or name in self._pipeline.steps:
            return name
        return name.removesuffix(REJECTED).removesuffix(UNDECODABLE)


def in_file_order(problems: Iterable[Problem]) -> list[Problem]:
    """Those of one file together; the files as they come."""
    every = list(problems)
    files = list(dict.fromkeys(problem.place.file for problem in every))

    def position(place: Place) -> tuple[int, int, int]:
        return files.index(place.file), place.line or 0, place.column or 0

    return sorted(every, key=lambda problem: position(problem.place))
