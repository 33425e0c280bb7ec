"""`penstock pipeline test`: runs a pipeline on the rows in its file and compares what comes out."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from penstock.cli.failures import CommandFailed
from penstock.cli.options import json_option
from penstock.cli.output import counted, print_json
from penstock.cli.pipeline.options import parameters_option, specification_argument

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.pipelines.specification.model import Case, Pipeline
    from penstock.pipelines.trying.cases import Outcome

FAILED = 1
# Tests are small; two tasks at a time leave room for the sources of a join.
MASTER = "local[2]"


@click.command()
@specification_argument
@parameters_option
@click.option("--case", "names", metavar="NAME", multiple=True, help="Run only this test.")
@json_option
def test(path: Path, parameters: Mapping[str, str], names: tuple[str, ...], as_json: bool) -> int:
    """Run the tests in a pipeline's file.

    Each test gives rows to sources and says which rows it expects in datasets. The tests run on
    Spark in this process, with real streaming queries, but read and write no topics or tables.
    Rows are compared in any order, in the columns that the test names.
    """
    from penstock.pipelines.running.extras import require_spark
    from penstock.pipelines.specification.reading import read_pipeline

    pipeline = read_pipeline(path, parameters)
    cases = chosen_cases(pipeline, names)
    if not cases:
        raise CommandFailed(f"The file {path} has no tests.")
    require_spark()
    outcomes = _outcomes(pipeline, cases, as_json=as_json)
    if as_json:
        print_json({"pipeline": pipeline.name, "tests": [as_plain(one) for one in outcomes]})
    else:
        click.echo(_summary(outcomes))
    return 0 if all(one.has_passed for one in outcomes) else FAILED


# Not a test of pytest's, which looks for names like this one.
test.__test__ = False  # type: ignore[attr-defined]


def chosen_cases(pipeline: Pipeline, names: Sequence[str]) -> list[Case]:
    """The cases of these names, or all; a name that does not exist is refused."""
    known = {case.name for case in pipeline.cases}
    for name in names:
        if name not in known:
            from penstock.pipelines.specification.context import nearest_or_known

            hint = nearest_or_known(name, known)
            raise CommandFailed(f'There is no test "{name}" in the pipeline{hint}.')
    return [case for case in pipeline.cases if not names or case.name in names]


def _outcomes(pipeline: Pipeline, cases: Sequence[Case], *, as_json: bool) -> list[Outcome]:
    from penstock.pipelines.running.sessions import make_session
    from penstock.pipelines.trying.cases import try_cases

    outcomes = []
    with TemporaryDirectory(prefix="penstock-test-") as folder:
        settings = {**pipeline.settings, "spark.ui.enabled": "false"}
        session = make_session(
            f"{pipeline.name} tests", storage=Path(folder), master=MASTER, settings=settings
        )
        try:
            for outcome in try_cases(pipeline, session, cases):
                outcomes.append(outcome)
                if not as_json:
                    _show(outcome)
        finally:
            session.stop()
    return outcomes


def _show(outcome: Outcome) -> None:
    from penstock.pipelines.trying.differences import lines_of

    word = "passed" if outcome.has_passed else "FAILED"
    click.echo(f"{word}  {outcome.case} ({outcome.duration_s:.1f} s)")
    if outcome.has_passed:
        return
    for problem in outcome.problems:
        click.echo(f"  {problem}")
    differing = [one for one in outcome.comparisons if not one.is_same]
    if differing:
        click.echo(f"  {outcome.place}")
    for comparison in differing:
        for line in lines_of(comparison):
            click.echo(f"  {line}")


def _summary(outcomes: Sequence[Outcome]) -> str:
    failed = sum(not one.has_passed for one in outcomes)
    if not failed:
        return f"{counted(len(outcomes), 'test')} passed."
    return f"{counted(len(outcomes), 'test')}: {len(outcomes) - failed} passed, {failed} failed."


def as_plain(outcome: Outcome) -> dict[str, object]:
    """An outcome for programs."""
    from penstock.pipelines.trying.differences import plain

    return {
        "name": outcome.case,
        "place": str(outcome.place),
        "passed": outcome.has_passed,
        "seconds": round(outcome.duration_s, 3),
        "problems": list(outcome.problems),
        "datasets": [
            {
                "name": one.dataset,
                "matched": one.matched,
                "missing": [plain(missing.row) for missing in one.missing],
                "unexpected": [plain(row) for row in one.unexpected],
            }
            for one in outcome.comparisons
        ],
    }
