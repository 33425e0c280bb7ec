"""The decorators: functions from DataFrames to a DataFrame as views, tables and flows.

The words and their parameters are those of `pyspark.pipelines`. One thing differs: a function takes
the datasets that it reads as parameters of their names, and so can be called in any test.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, overload

from penstock.pipelines.declaring.declarations import (
    Declarations,
    DeclaredFlow,
    declarations_for,
)
from penstock.pipelines.declaring.functions import declare_step, name_of
from penstock.pipelines.declaring.places import place_of_caller
from penstock.pipelines.declaring.targets import declare_table
from penstock.pipelines.specification.fields import Fields
from penstock.pipelines.specification.model import Options, OutputMode
from penstock.pipelines.specification.problems import Place
from penstock.pipelines.specification.shaping import read_interval
from penstock.pipelines.specification.tree import tree_of

Query = TypeVar("Query", bound=Callable[..., Any])
Decorator = Callable[[Query], Query]


@overload
def temporary_view(query_function: Query) -> Query: ...


@overload
def temporary_view(
    query_function: None = None,
    *,
    name: str | None = None,
    comment: str | None = None,
    spark_conf: Mapping[str, object] | None = None,
    watermark: object = None,
    rules: object = None,
) -> Decorator[Any]: ...


def temporary_view(
    query_function: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    comment: str | None = None,
    spark_conf: Mapping[str, object] | None = None,
    watermark: object = None,
    rules: object = None,
) -> Any:
    """A dataset that others can read and that is stored nowhere.

    `spark_conf` holds for each flow that reads it. `watermark` and `rules` are as in
    `create_source`.
    """
    place = place_of_caller()
    declarations = declarations_for("temporary_view", place)

    def declare(function: Query) -> Query:
        view = name_of(function, name, place)
        declare_step(declarations, function, view, place, watermark=watermark, rules=rules)
        declarations.settings[view] = _settings(declarations, view, spark_conf, place)
        return function

    return declare if query_function is None else declare(query_function)


@overload
def table(query_function: Query) -> Query: ...


@overload
def table(
    query_function: None = None,
    *,
    name: str | None = None,
    comment: str | None = None,
    spark_conf: Mapping[str, object] | None = None,
    table_properties: Mapping[str, str] | None = None,
    partition_cols: list[str] | None = None,
    evolve: bool | None = None,
    cluster_by: list[str] | None = None,
    schema: object = None,
    format: str | None = None,
    path: str | None = None,
    options: Mapping[str, Any] | None = None,
    every: str | None = None,
    watermark: object = None,
    rules: object = None,
) -> Decorator[Any]: ...


def table(
    query_function: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    comment: str | None = None,
    spark_conf: Mapping[str, object] | None = None,
    table_properties: Mapping[str, str] | None = None,
    partition_cols: list[str] | None = None,
    evolve: bool | None = None,
    cluster_by: list[str] | None = None,
    schema: object = None,
    format: str | None = None,  # noqa: A002
    path: str | None = None,
    options: Mapping[str, Any] | None = None,
    every: str | None = None,
    watermark: object = None,
    rules: object = None,
) -> Any:
    """A dataset that is stored, each micro-batch exactly once, by a flow of its name.

    `format` is parquet (the default), delta or iceberg; without a `path` it is in
    `tables/` beside the file. `every` is the time between two micro-batches.
    """
    place = place_of_caller()
    declarations = declarations_for("table", place)

    def declare(function: Query) -> Query:
        stored = name_of(function, name, place)
        declare_step(declarations, function, stored, place, watermark=watermark, rules=rules)
        declare_table(
            declarations,
            stored,
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
        _declare_flow(declarations, stored, stored, place, spark_conf, every=every)
        return function

    return declare if query_function is None else declare(query_function)


def append_flow(
    *,
    target: str,
    name: str | None = None,
    spark_conf: Mapping[str, object] | None = None,
    every: str | None = None,
    mode: str | None = None,
    watermark: object = None,
    rules: object = None,
) -> Decorator[Any]:
    """A flow into a sink or a streaming table, which may be declared above or below.

    `mode` is Spark's output mode: append unless the sink takes another.
    """
    place = place_of_caller()
    declarations = declarations_for("append_flow", place)

    def declare(function: Query) -> Query:
        flow = name_of(function, name, place)
        declare_step(declarations, function, flow, place, watermark=watermark, rules=rules)
        _declare_flow(declarations, flow, target, place, spark_conf, every=every, mode=mode)
        return function

    return declare


def materialized_view(query_function: object = None, **words: object) -> Any:
    """Refused: a pipeline is made of streams, and this is computed again each time."""
    return _refuse("materialized_view", "declare a table that grows with table", query_function)


def create_auto_cdc_flow(*words: object, **named: object) -> None:
    """Refused: rows are only ever appended."""
    _refuse("create_auto_cdc_flow", "flows only append; merge in a sink of the format function")


def _refuse(word: str, instead: str, function: object = None) -> Any:
    place = place_of_caller()
    declarations = declarations_for(word, place)
    declarations.problem(place, f"{word} is not supported: {instead}.")
    return function if function is not None else lambda decorated: decorated


def _declare_flow(
    declarations: Declarations,
    name: str,
    target: str,
    place: Place,
    spark_conf: Mapping[str, object] | None,
    *,
    every: str | None,
    mode: str | None = None,
) -> None:
    owner = f"the flow {name}"
    said = {"every": every, "mode": mode}
    fields = Fields(tree_of(said, place), declarations.context, owner=owner, known=tuple(said))
    declarations.flows.append(
        DeclaredFlow(
            name=name,
            input=name,
            target=target,
            interval=read_interval(fields, "every", declarations.context, owner=owner),
            mode=fields.choice("mode", OutputMode, OutputMode.APPEND),
            settings=_settings(declarations, name, spark_conf, place),
            place=place,
        )
    )


def _settings(
    declarations: Declarations, owner: str, spark_conf: Mapping[str, object] | None, place: Place
) -> Options:
    node = tree_of({"spark_conf": spark_conf}, place)
    fields = Fields(node, declarations.context, owner=owner, known=("spark_conf",))
    return fields.pairs("spark_conf")
