"""The reference page has every key that a specification may have, and none that it may not."""

import re

import pytest

from penstock.pipelines.specification import (
    cases,
    flows,
    parameters,
    shaping,
    sinks,
    sources,
    steps,
    yaml_reading,
)
from penstock.pipelines.specification.model import LakeFormat
from tests.documents import ROOT

PAGE = (ROOT / "docs" / "reference" / "pipeline-specification.md").read_text()
LAKES = tuple(one.value for one in LakeFormat)
KEYS: dict[str, tuple[str, ...]] = {
    "The pipeline": yaml_reading.KEYS,
    "Restarts": shaping.RESTART_KEYS,
    "Parameters": parameters.KEYS,
    "Topics": sources.KEYS["topic"],
    "Files": sources.KEYS["files"],
    "Tables": sources.KEYS["table"],
    "Archives": sources.KEYS["archive"],
    "Decoding": shaping.DECODE_KEYS,
    "Watermarks": shaping.WATERMARK_KEYS,
    "Rules": shaping.RULE_KEYS,
    "SQL": steps.KEYS["sql"],
    "Functions": steps.KEYS["function"],
    "Deduplication": steps.KEYS["deduplicate"],
    "Flows": flows.KEYS,
    "To a topic": sinks.KEYS["topic"],
    "To a table": (*LAKES, *sinks.KEYS["delta"][1:]),
    "To the terminal": sinks.KEYS["console"],
    "To a function": sinks.KEYS["function"],
    "Tests": cases.KEYS,
}


def sections() -> dict[str, str]:
    parts = re.split(r"^##+ (.+)$", PAGE, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("section", KEYS)
def test_every_key_is_on_the_page(section: str) -> None:
    described = re.findall(r"^\| `(\w+)` \|", sections()[section], flags=re.MULTILINE)
    assert described == list(KEYS[section])


def test_no_table_of_keys_is_left_out() -> None:
    with_tables = [name for name, text in sections().items() if "| key |" in text]
    assert with_tables == list(KEYS)


@pytest.mark.parametrize("kind", sources.FILE_FORMATS)
def test_every_format_of_files_is_on_the_page(kind: str) -> None:
    assert f"`{kind}`" in sections()["Files"]
