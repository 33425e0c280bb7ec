"""Proves that the reference page names every option and every setting that acts, and no other."""

import re

from penstock.spark.options.kafka_settings import READ_NAMES, WRITE_NAMES
from penstock.spark.options.misspelt import READ_OPTIONS, WRITE_OPTIONS
from tests.documents import ROOT, Document

PAGE = Document(ROOT / "docs" / "reference" / "spark-options.md")
ROW = re.compile(r"^\| `([^`]+)` \|", re.M)
SETTING = re.compile(r"`([a-z0-9]+(?:\.[a-z0-9]+)*)`")


def section(title: str) -> str:
    """What is below a heading, up to the next one."""
    return PAGE.text.split(f"## {title}\n")[1].split("\n## ")[0]


def test_every_option_of_a_read_is_explained() -> None:
    assert set(ROW.findall(section("Reading"))) == {*READ_OPTIONS, "kafka.bootstrap.servers"}


def test_every_option_of_a_write_is_explained() -> None:
    options, _ = section("Writing").split("| column |")
    assert set(ROW.findall(options)) == {*WRITE_OPTIONS, "kafka.bootstrap.servers"}


def test_every_setting_that_acts_is_named_in_its_column() -> None:
    both, reading, writing = set[str](), set[str](), set[str]()
    for line in section("Settings of the Java client").splitlines():
        if line.startswith("|") and "`" in line:
            cells = [set(SETTING.findall(cell)) for cell in line.strip("|").split("|")]
            for found, cell in zip((both, reading, writing), cells, strict=True):
                found |= cell
    assert both == READ_NAMES & WRITE_NAMES
    assert reading == READ_NAMES - WRITE_NAMES
    assert writing == WRITE_NAMES - READ_NAMES
