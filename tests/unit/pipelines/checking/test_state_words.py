"""Proves how windows are told in a state's signature, so that two lengths never look alike."""

from penstock.pipelines.checking.state_signature import _defined

COLUMN = "precisetimestampconversion(at#4-T10000ms, TimestampType, LongType)"


def window(size: int, slide: int, offset: int = 0) -> str:
    """As Spark's analysis writes a window's bounds."""
    rest = f"(({COLUMN} - {offset}) % {slide})"
    begin = (
        f"(({COLUMN} - CASE WHEN ({rest} < cast(0 as bigint)) THEN ({rest} + {slide}) ELSE {rest} "
        f"END) - 0)"
    )
    return (
        f"named_struct(start, knownnullable(precisetimestampconversion({begin}, LongType, "
        f"TimestampType)), end, knownnullable(precisetimestampconversion(({begin} + {size}), "
        "LongType, TimestampType)))"
    )


def test_windows_are_told_by_size_slide_and_offset() -> None:
    second = 1_000_000
    told = {
        window(10 * second, 10 * second): "window of 10 s on at",
        window(10 * second, 5 * second): "window of 10 s on at every 5 s",
        window(60 * second, 60 * second, 15 * second): "window of 60 s on at from 15 s",
    }
    for definition, words in told.items():
        assert _defined("window#13-T10000ms", {"13": definition}) == words


def test_columns_are_told_by_what_they_were_made_of() -> None:
    definitions = {"7": "upper(name#3)", "8": "day#9", "3": "cast(raw#2 as string)"}
    assert _defined("sensor#7", definitions) == "upper(cast(raw as string))"
    assert _defined("day#8L", definitions) == "day"
