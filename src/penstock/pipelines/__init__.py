"""Pipelines on Spark that are described in a file.

A Python file begins with `from penstock import pipelines as dp`. Everything here is loaded when it
is first used: a specification can be read and drawn where Spark is not installed.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.pipelines.declaring.decorators import (
        append_flow,
        create_auto_cdc_flow,
        materialized_view,
        table,
        temporary_view,
    )
    from penstock.pipelines.declaring.words import (
        create_sink,
        create_source,
        create_streaming_table,
        parameter,
        pipeline,
        test,
    )
    from penstock.pipelines.specification.model import Pipeline
    from penstock.pipelines.specification.problems import SpecificationRefused
    from penstock.pipelines.specification.reading import read_pipeline

__all__ = [
    "Pipeline",
    "SpecificationRefused",
    "append_flow",
    "create_auto_cdc_flow",
    "create_sink",
    "create_source",
    "create_streaming_table",
    "materialized_view",
    "parameter",
    "pipeline",
    "read_pipeline",
    "table",
    "temporary_view",
    "test",
]

_DECORATORS = "penstock.pipelines.declaring.decorators"
_WORDS = "penstock.pipelines.declaring.words"
HOMES = {
    "Pipeline": "penstock.pipelines.specification.model",
    "SpecificationRefused": "penstock.pipelines.specification.problems",
    "append_flow": _DECORATORS,
    "create_auto_cdc_flow": _DECORATORS,
    "create_sink": _WORDS,
    "create_source": _WORDS,
    "create_streaming_table": _WORDS,
    "materialized_view": _DECORATORS,
    "parameter": _WORDS,
    "pipeline": _WORDS,
    "read_pipeline": "penstock.pipelines.specification.reading",
    "table": _DECORATORS,
    "temporary_view": _DECORATORS,
    "test": _WORDS,
}


def __getattr__(name: str) -> object:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
