"""The words for what a pipeline reads, writes and is: `create_source`, `create_sink`, `test` ..."""

from collections.abc import Mapping
from typing import Any

from penstock.pipelines.declaring.cases import case_of
from penstock.pipelines.declaring.declarations import Header, declarations_for
from penstock.pipelines.declaring.functions import rules_map, watermark_map
from penstock.pipelines.declaring.places import place_of_caller
from penstock.pipelines.declaring.targets import declare_sink, declare_table
from penstock.pipelines.specification.fields import Fields
from penstock.pipelines.specification.model import Parameter
from penstock.pipelines.specification.parameters import check_name, missing_value, value_of
from penstock.pipelines.specification.shaping import read_restart
from penstock.pipelines.specification.sources import dead_letters_topic, read_source
from penstock.pipelines.specification.tree import tree_of


def pipeline(
    name: str,
    *,
    description: str = "",
    storage: str | None = None,
    settings: Mapping[str, object] | None = None,
    restart: Mapping[str, object] | None = None,
) -> None:
    """The pipeline's name; where its checkpoints lie; Spark's settings for its session.

    `restart` says how often and when a flow that died is started again, with the keys of YAML.
    A file that does not say it is named after itself.
    """
    place = place_of_caller()
    declarations = declarations_for("pipeline", place)
    if declarations.header is not None:
        first = declarations.header.place
        declarations.problem(place, f"The pipeline is already described, in {first}.")
        return
    said = Fields(
        tree_of({"settings": settings, "restart": restart}, place),
        declarations.context,
        owner="the pipeline",
        known=("settings", "restart"),
    )
    declarations.header = Header(
        name=name,
        description=description,
        storage=storage,
        settings=said.pairs("settings"),
        restart=read_restart(said, declarations.context),
        place=place,
    )


def parameter(
    name: str,
    *,
    default: object = None,
    environment: str | None = None,
    description: str = "",
) -> str:
    """A value that is given when the pipeline runs, here and now.

    It comes from `-p name=value`, else from the environment (the variable that is named, or
    PENSTOCK_ and the name in capitals), else it is the default.
    """
    place = place_of_caller()
    declarations = declarations_for("parameter", place)
    declared = Parameter(
        name=name,
        default=None if default is None else str(default),
        environment=environment,
        description=description,
        place=place,
    )
    check_name(name, place, declarations.context.problems)
    if any(other.name == name for other in declarations.parameters):
        declarations.problem(place, f"The parameter {name} is declared twice.")
    declarations.parameters.append(declared)
    value = value_of(declared, declarations.given, declarations.environment)
    if value is None:
        declarations.context.problems.append(missing_value(declared))
    declarations.values[name] = value or ""
    return value or ""


def create_source(name: str, **keys: Any) -> None:
    """A dataset from outside, with the keys that a source has in YAML.

    One of `topic`, `topics`, `pattern`, `files`, `table`, `archive` says what is read. With it may
    stand `brokers`, `starting`, `format`, `schema`, `stream`, `options`, `decode`, `watermark` (a
    mapping, or column and delay), `rules` (by name: a mapping, or condition and action) and
    `dead_letters`, the topic for records that can't be decoded.
    """
    place = place_of_caller()
    declarations = declarations_for("create_source", place)
    said = {key: value for key, value in keys.items() if value is not None}
    if "watermark" in said:
        said["watermark"] = watermark_map(said["watermark"])
    if "rules" in said:
        said["rules"] = rules_map(said["rules"])
    node = tree_of(said, place)
    source = read_source(name, place, node, declarations.context)
    topic = dead_letters_topic(node, declarations.context)
    if source is None:
        declarations.broken.add(name)
        return
    declarations.sources.append(source)
    if topic is not None:
        declarations.dead_letters.append((source, topic.text, place))


def create_sink(name: str, format: str, options: Mapping[str, Any] | None = None) -> None:  # noqa: A002
    """Something outside that flows write to.

    `format` is penstock (options: topic, key, those of `.format("penstock")`), parquet, delta or
    iceberg (path, partition_cols, evolve, others), console (numRows), or function (function).
    """
    place = place_of_caller()
    declare_sink(declarations_for("create_sink", place), name, format, dict(options or {}), place)


def create_streaming_table(
    name: str,
    *,
    comment: str | None = None,
    table_properties: Mapping[str, str] | None = None,
    partition_cols: list[str] | None = None,
    evolve: bool | None = None,
    cluster_by: list[str] | None = None,
    schema: object = None,
    format: str | None = None,  # noqa: A002
    path: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> None:
    """A table that append flows write to; the words are those of `table`."""
    place = place_of_caller()
    declarations = declarations_for("create_streaming_table", place)
    declare_table(
        declarations,
        name,
        place,
        format=format,
        path=path,
        partition_cols=partition_cols,
        evolve=evolve,
        options=options,
        left_out={
            "table_properties": table_properties,
            "cluster_by": cluster_by,
            "schema": schema,
        },
    )


def test(name: str, *, given: Mapping[str, Any], expect: Mapping[str, Any]) -> None:
    """A test case: rows by source, and the rows that are expected by dataset.

    The rows of a source are a list, or a list of lists: micro-batches.
    """
    place = place_of_caller()
    declarations = declarations_for("test", place)
    declarations.cases.append(case_of(declarations, name, given, expect, place))


# Not a test of pytest's, which looks for names like this one.
test.__test__ = False  # type: ignore[attr-defined]
