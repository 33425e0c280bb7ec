"""A failing test shows what is missing, what came instead, and where the nearest row differs."""

from datetime import UTC, datetime

from pyspark.sql import types as spark

from penstock.pipelines.trying.differences import ROWS_SHOWN_MAX, compare, lines_of, plain

SCHEMA = (
    spark.StructType()
    .add("sensor", "string")
    .add("at", "timestamp")
    .add("mean", "double")
    .add("key", "binary")
)
AT = datetime(2026, 1, 1, tzinfo=UTC)


def test_the_difference_names_missing_rows_the_nearest_and_unexpected_ones() -> None:
    expected = [{"sensor": "a", "mean": 20.5}, {"sensor": "b", "mean": 1.0}, {"sensor": "c"}]
    found = [
        {"sensor": "a", "at": AT, "mean": 21.0, "key": b"k"},
        {"sensor": "b", "at": AT, "mean": 1.0, "key": b"k"},
        {"sensor": "d", "at": AT, "mean": None, "key": b"k"},
    ]
    comparison = compare("averages", expected, found, SCHEMA)
    assert not comparison.is_same
    assert lines_of(comparison) == [
        "averages: 1 as expected, 2 missing, 2 unexpected.",
        '  missing     sensor: "a", mean: 20.5',
        "    nearest   has mean: 21.0",
        '  missing     sensor: "c"',
        '  unexpected  sensor: "a", mean: 21.0',
        '  unexpected  sensor: "d", mean: null',
    ]


def test_where_nothing_is_expected_whole_rows_are_shown() -> None:
    found = [{"sensor": 'a"', "at": AT, "mean": 1.0, "key": b"\xff"}]
    lines = lines_of(compare("alerts", [], found, SCHEMA))
    assert lines == [
        "alerts: 0 as expected, 1 unexpected.",
        '  unexpected  sensor: "a\\"", at: 2026-01-01T00:00:00Z, mean: 1.0, key: "\\\\xff"',
    ]


def test_long_lists_are_cut() -> None:
    found = [{"sensor": str(number)} for number in range(ROWS_SHOWN_MAX + 5)]
    lines = lines_of(compare("alerts", [], found, SCHEMA))
    assert len(lines) == ROWS_SHOWN_MAX + 2
    assert lines[-1] == "  and 5 more unexpected"


def test_the_same_rows_leave_one_line() -> None:
    comparison = compare("alerts", [{"sensor": "a"}], [{"sensor": "a"}], SCHEMA)
    assert comparison.is_same
    assert lines_of(comparison) == ["alerts: 1 as expected."]


def test_values_are_shown_as_json_can_hold_them() -> None:
    assert plain({"window": {"start": AT}, "tags": [b"x", ("a", 1)]}) == {
        "window": {"start": "2026-01-01T00:00:00Z"},
        "tags": ["x", ["a", 1]],
    }
