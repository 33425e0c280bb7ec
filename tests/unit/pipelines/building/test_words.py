"""Proves that a wrong word is found where the user wrote it, or else the place that is known."""

from pathlib import Path

import pytest

from penstock.pipelines.building.words import place_in_text, place_of_word
from penstock.pipelines.specification.problems import Place

FILE = """\
sources:
  readings:
    topic: readings
    options:
      maxOffsetsPerTriger: 5
    rules: {plausible: {condition: temprature > 1}}
  others:
    topic: maxOffsetsPerTriger
steps:
  averages:
    sql: |
      SELECT sensor,
        temprature
      FROM readings
  folded:
    sql: >
      SELECT sensor
      FROM reading
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "iot.yaml"
    path.write_text(FILE)
    return str(path)


def test_a_word_is_found_below_its_place(file: str) -> None:
    assert place_of_word(Place(file, 2, 3), "maxOffsetsPerTriger") == Place(file, 5, 7)


def test_a_word_is_found_in_any_case_as_spark_names_columns(file: str) -> None:
    assert place_of_word(Place(file, 2, 3), "Temprature") == Place(file, 6, 36)


def test_a_search_ends_with_the_block(file: str) -> None:
    assert place_of_word(Place(file, 7, 3), "averages") == Place(file, 7, 3)


def test_only_whole_words_count(file: str) -> None:
    assert place_of_word(Place(file, 2, 3), "maxOffsets") == Place(file, 2, 3)


def test_a_search_begins_at_the_column_of_its_place(file: str) -> None:
    assert place_of_word(Place(file, 3, 5), "topic") == Place(file, 3, 5)
    assert place_of_word(Place(file, 3, 6), "topic") == Place(file, 3, 6)


def test_a_place_in_a_text_counts_from_the_first_character_of_the_text(file: str) -> None:
    assert place_in_text(Place(file, 12, 7), 2, 2, "temprature") == Place(file, 13, 9)


def test_a_folded_text_is_searched_instead(file: str) -> None:
    """YAML has made one line of it, so that Spark counts otherwise than the file."""
    assert place_in_text(Place(file, 17, 7), 1, 19, "reading") == Place(file, 18, 12)


def test_a_place_without_a_column_is_enough_to_search_from(file: str) -> None:
    """In Python a whole call is one place."""
    assert place_in_text(Place(file, 10), 2, 2, "temprature") == Place(file, 13, 9)


def test_a_file_that_is_gone_keeps_the_place() -> None:
    gone = Place("/nonexistent/iot.yaml", 3, 4)
    assert place_of_word(gone, "topic") == gone
    assert place_of_word(Place("iot.yaml"), "topic") == Place("iot.yaml")
