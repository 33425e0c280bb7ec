"""Proves that a stream is known by what it reads, so that a checkpoint never goes on elsewhere."""

import pytest

from penstock.pipelines.lakes.table_source_stream import DESCRIPTION, NAME, TableDescription
from penstock.pipelines.running.source_signature import TABLE, are_same_sources, named


def table(root: str) -> dict[str, str]:
    description = TableDescription(format="delta", root=root, options={}, tasks_wanted=2)
    return {DESCRIPTION: description.to_text()}


@pytest.mark.parametrize(
    ("kind", "options", "name"),
    [
        ("penstock", {"Subscribe": "readings", "path": "unused"}, "topic readings"),
        ("csv", {"path": "/data/rooms"}, "csv /data/rooms"),
        (NAME, table("/lake/raw"), "table /lake/raw"),
        ("rate", {}, "rate"),
    ],
)
def test_streams_are_named(kind: str, options: dict[str, str], name: str) -> None:
    assert named(kind, options) == name


def test_a_checkpoint_fits_the_same_streams_in_the_same_order() -> None:
    before = ("table /lake/raw", "topic readings")
    assert are_same_sources(before, before)
    assert not are_same_sources(before, ("table /lake/other", "topic readings"))
    assert not are_same_sources(before, before[::-1])
    assert not are_same_sources(before, before[:1])


def test_a_checkpoint_that_did_not_say_which_table_still_fits() -> None:
    assert are_same_sources((TABLE, "topic readings"), ("table /lake/raw", "topic readings"))
    assert not are_same_sources((TABLE,), ("topic readings",))
