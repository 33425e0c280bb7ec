"""How far a query is behind is read from Spark's progress, in whatever form somebody has it."""

import json
from typing import Any

import pytest

from penstock.spark.reading.stream_progress import offsets_behind

END = {"@start": {"a": {"0": 0}}, "a": {"0": 3, "1": 5}}
LATEST = {"a": {"0": 9, "1": 5, "2": 4}}
FILES = {"endOffset": {"logOffset": 7}, "latestOffset": None}


def progress(end: Any, latest: Any) -> dict[str, Any]:
    return {"sources": [{"endOffset": end, "latestOffset": latest}, FILES]}


@pytest.mark.parametrize(
    "said",
    [
        progress(END, LATEST),
        progress(json.dumps(END), json.dumps(LATEST)),
        json.dumps(progress(END, LATEST)),
    ],
)
def test_each_partition_is_compared_with_its_end(said: Any) -> None:
    assert offsets_behind(said) == {"a": {"0": 6, "1": 0, "2": 4}}


@pytest.mark.parametrize("said", [None, progress(END, None), progress("no json", "null")])
def test_where_nothing_is_known_nothing_is_said(said: Any) -> None:
    assert offsets_behind(said) == {}
