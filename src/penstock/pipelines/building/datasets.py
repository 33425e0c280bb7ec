"""The datasets of a pipeline as frames of Spark: sources, steps, and what is set aside of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

from penstock.pipelines.building.decoding import (
    decoded_rows,
    for_dead_letters,
    for_rows,
    undecodable_records,
)
from penstock.pipelines.building.refusing import refusing
from penstock.pipelines.building.rules import (
    counted,
    lenient,
    passed,
    rejected,
    routes,
    rule_problems,
)
from penstock.pipelines.building.steps import step_frame
from penstock.pipelines.building.watermarks import watermark_problems, with_watermark
from penstock.pipelines.specification.model import (
    REJECTED,
    UNDECODABLE,
    ArchiveSource,
    Pipeline,
    Rule,
    Source,
    Step,
    TopicSource,
    Watermark,
)
from penstock.pipelines.specification.problems import Problem, SpecificationRefused


class Reader(Protocol):
    """Where the rows of sources come from: brokers and disks, a test, or nowhere."""

    def read(self, source: Source) -> DataFrame:
        """The raw rows, before decoding, watermark and rules."""


def refuse(dataset: str, problems: Sequence[Problem]) -> None:
    """What is done about problems with rules and watermarks, unless somebody collects them."""
    raise SpecificationRefused(problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shaped:
    """A dataset's rows, counted but not yet divided, with what is still to be done to them."""

    rows: DataFrame
    rules: tuple[Rule, ...]
    watermark: Watermark | None


class Datasets:
    """Builds each dataset when it is first asked for, and once."""

    def __init__(
        self,
        pipeline: Pipeline,
        spark: SparkSession,
        reader: Reader,
        complain: Callable[[str, Sequence[Problem]], None] = refuse,
    ) -> None:
        self._pipeline = pipeline
        self._spark = spark
        self._reader = reader
        self._complain = complain
        self._frames: dict[str, DataFrame] = {}
        self._shaped: dict[str, Shaped] = {}

    def frame(self, name: str) -> DataFrame:
        """Any dataset, also `<name>_undecodable` and `<name>_rejected`.

        Raises SpecificationRefused with everything that is wrong with the dataset, or with the
        first wrong one that it depends on.
        """
        if name not in self._frames:
            self._frames[name] = self._built(name)
        return self._frames[name]

    def _built(self, name: str) -> DataFrame:
        if declared := self._declared(name):
            shaped = self._shape(declared)
            return with_watermark(passed(shaped.rows, name, shaped.rules), shaped.watermark)
        if base := self._declared(name.removesuffix(REJECTED)):
            assert routes(base.rules), "references are checked when a pipeline is read"
            shaped = self._shape(base)
            return rejected(shaped.rows, shaped.rules)
        source = self._pipeline.sources[name.removesuffix(UNDECODABLE)]
        assert isinstance(source, TopicSource | ArchiveSource), "only records are decoded"
        return undecodable_records(self._read(for_dead_letters(source)), source, name)

    def _declared(self, name: str) -> Source | Step | None:
        return self._pipeline.sources.get(name) or self._pipeline.steps.get(name)

    def _shape(self, declared: Source | Step) -> Shaped:
        if declared.name not in self._shaped:
            self._shaped[declared.name] = self._shaped_rows(declared)
        return self._shaped[declared.name]

    def _shaped_rows(self, declared: Source | Step) -> Shaped:
        rows = self._rows(declared)
        wrong_rules = rule_problems(rows, declared.rules)
        wrong_watermark = watermark_problems(rows, declared.watermark)
        if wrong_rules or wrong_watermark:
            self._complain(declared.name, [*wrong_rules, *wrong_watermark])
        # Anyone who goes on all the same wants to know more about datasets that come from this one.
        rules = lenient(declared.rules) if wrong_rules else declared.rules
        return Shaped(
            rows=counted(rows, declared.name, rules),
            rules=rules,
            watermark=None if wrong_watermark else declared.watermark,
        )

    def _rows(self, declared: Source | Step) -> DataFrame:
        if isinstance(declared, TopicSource | ArchiveSource):
            records = self._read(for_rows(declared))
            return records if declared.decoding is None else decoded_rows(records, declared)
        if isinstance(declared, Source):
            return self._read(declared)
        inputs = {name: self.frame(name) for name in declared.inputs}
        return step_frame(declared, inputs, self._spark, self._pipeline.parameters)

    def _read(self, source: Source) -> DataFrame:
        with refusing(source.place):
            return self._reader.read(source)
