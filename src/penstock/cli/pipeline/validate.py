"""`penstock pipeline validate`: says what is wrong with a pipeline before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli.options import json_option
from penstock.cli.output import counted, print_json
from penstock.cli.pipeline.options import parameters_option, specification_argument
from penstock.pipelines.specification.problems import SpecificationRefused

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.pipelines.specification.model import Pipeline
    from penstock.pipelines.specification.problems import Problem

FAILED = 1


@click.command()
@specification_argument
@parameters_option
@click.option("--online", is_flag=True, help="Also ask the brokers whether the topics exist.")
@json_option
def validate(path: Path, parameters: Mapping[str, str], online: bool, as_json: bool) -> int:
    """Check a pipeline without running it.

    Checks schemas, SQL, conditions, options, references, and what Spark allows in streams:
    everything that can be known without data or a broker. Reports each problem with its file, line
    and column.
    """
    try:
        pipeline = _checked(path, parameters, online=online)
    except SpecificationRefused as refused:
        if not as_json:
            raise
        print_json(as_plain(path, refused.problems))
        return FAILED
    if as_json:
        print_json(as_plain(path, ()))
    else:
        click.echo(f"{path}: {size_of(pipeline)}: fine.")
    return 0


def size_of(pipeline: Pipeline) -> str:
    parts = (
        (len(pipeline.sources), "source"),
        (len(pipeline.steps), "step"),
        (len(pipeline.flows), "flow"),
    )
    return ", ".join(counted(number, noun) for number, noun in parts)


def as_plain(path: Path, problems: Sequence[Problem]) -> dict[str, object]:
    """What was found, for programs."""
    return {
        "file": str(path),
        "valid": not problems,
        "problems": [
            {
                "file": problem.place.file,
                "line": problem.place.line,
                "column": problem.place.column,
                "sentence": problem.sentence,
            }
            for problem in problems
        ],
    }


def _checked(path: Path, parameters: Mapping[str, str], *, online: bool) -> Pipeline:
    """The pipeline, if nothing is wrong with it; raises SpecificationRefused with all that is."""
    from penstock.pipelines.running.extras import require_spark
    from penstock.pipelines.specification.reading import read_pipeline

    pipeline = read_pipeline(path, parameters)
    require_spark()
    problems = _offline_problems(pipeline)
    if online:
        from penstock.pipelines.checking.topics import check_topics

        problems += check_topics(pipeline)
    if problems:
        from penstock.pipelines.checking.checking import in_file_order

        raise SpecificationRefused(in_file_order(problems))
    return pipeline


def _offline_problems(pipeline: Pipeline) -> list[Problem]:
    from penstock.pipelines.checking.checking import check
    from penstock.pipelines.checking.light_session import light_session

    with light_session(f"{pipeline.name} check", pipeline.settings) as spark:
        return check(pipeline, spark)
