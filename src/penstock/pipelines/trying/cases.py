"""Runs the test cases of a specification and says of each how it went."""

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

from pyspark.sql import SparkSession

from penstock.pipelines.building.refusing import REFUSALS
from penstock.pipelines.building.spark_problems import problem_of
from penstock.pipelines.specification.model import Case, Pipeline
from penstock.pipelines.specification.problems import Place, SpecificationRefused
from penstock.pipelines.trying.differences import Comparison
from penstock.pipelines.trying.trial import TrialFailed, compared, session_for


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a case went: the datasets compared, or why it could not be run."""

    case: str
    place: Place
    duration_s: float
    comparisons: tuple[Comparison, ...] = ()
    problems: tuple[str, ...] = ()
    """Each with its place."""

    @property
    def has_passed(self) -> bool:
        return not self.problems and all(one.is_same for one in self.comparisons)


def try_cases(
    pipeline: Pipeline,
    running: SparkSession,
    cases: Sequence[Case] | None = None,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Outcome]:
    """Each case in turn, in a session of the JVM that is running; all of them by default."""
    for case in pipeline.cases if cases is None else cases:
        yield try_case(pipeline, case, running, clock=clock)


def try_case(
    pipeline: Pipeline,
    case: Case,
    running: SparkSession,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> Outcome:
    """One case; a fault of the specification is a problem in the outcome."""
    began = clock()
    folder = Path(mkdtemp(prefix="penstock-test-"))
    comparisons: tuple[Comparison, ...] = ()
    problems: tuple[str, ...] = ()
    try:
        comparisons = compared(pipeline, case, session_for(pipeline, running), folder)
    except SpecificationRefused as refused:
        problems = tuple(str(problem) for problem in refused.problems)
    except TrialFailed as failed:
        problems = (f"{case.place}: {failed}",)
    except REFUSALS as error:
        problems = (str(problem_of(error, case.place)),)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return Outcome(
        case=case.name,
        place=case.place,
        duration_s=clock() - began,
        comparisons=comparisons,
        problems=problems,
    )
