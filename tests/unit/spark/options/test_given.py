"""Proves that options are found in any case and read as the types that Spark's source reads."""

import pytest

from penstock.spark.options.errors import OptionError
from penstock.spark.options.given import LONG_MAX, Given


def given(text: str) -> Given:
    return Given.of({"Some.Name": text})


def test_a_name_is_found_in_any_case() -> None:
    options = Given.of({"FailOnDataLoss": "false", "other": None})  # type: ignore[dict-item]
    assert "failondataloss" in options
    assert "FAILONDATALOSS" in options
    assert "other" not in options
    assert options.flag("failOnDataLoss", True) is False


def test_texts_lose_the_blanks_around_them() -> None:
    assert given("  a b ").text("some.name") == "a b"
    assert Given.of({}).text("some.name") is None


def test_an_empty_text_is_refused_where_one_is_needed() -> None:
    with pytest.raises(OptionError, match=r"^The option some\.name is empty\.$"):
        given(" ").text_filled("some.name")


@pytest.mark.parametrize(("text", "flag"), [("true", True), (" FALSE ", False), ("True", True)])
def test_flags(text: str, flag: bool) -> None:
    assert given(text).flag("some.name", not flag) is flag


@pytest.mark.parametrize("text", ["yes", "1", "", "truth"])
def test_other_words_are_no_flags(text: str) -> None:
    with pytest.raises(OptionError, match=f'some.name must be true or false, not "{text}"'):
        given(text).flag("some.name", True)


@pytest.mark.parametrize(("text", "number"), [("7", 7), (" 007", 7), ("+7", 7), ("0", 0)])
def test_numbers(text: str, number: int) -> None:
    assert given(text).number("some.name") == number


@pytest.mark.parametrize(
    "text", ["", "1.5", "1e3", "1_000", "0x10", "seven", "-1", "9" * 19, "9" * 5000, "\u0663"]
)
def test_what_is_no_number_or_out_of_range_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match=r"some\.name must be a whole number of at least 0, not"):
        given(text).number("some.name")


def test_the_range_of_a_number_is_named() -> None:
    assert given(str(LONG_MAX)).number("some.name") == LONG_MAX
    with pytest.raises(OptionError, match="must be a positive whole number, not"):
        given("0").number("some.name", least=1)
    with pytest.raises(OptionError, match="must be a whole number from 1 to 9, not"):
        given("10").number("some.name", least=1, most=9)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("500", 0.5),
        ("250us", 0.00025),
        ("30s", 30.0),
        ("15m", 900.0),
        ("15min", 900.0),
        ("2 minutes", 120.0),
        ("2H", 7200.0),
        ("1d", 86400.0),
        (" 1 day ", 86400.0),
        ("0s", 0.0),
    ],
)
def test_times(text: str, seconds: float) -> None:
    assert given(text).seconds("some.name", 1.0) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "soon", "-5s", "1.5s", "5 fortnights", "5s5s"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match=r"some\.name must be a time such as 500ms, 30s, 15m"):
        given(text).seconds("some.name", 1.0)


def test_a_long_value_is_cut_in_the_sentence() -> None:
    with pytest.raises(OptionError) as refusal:
        given("x" * 10_000).flag("some.name", True)
    assert len(str(refusal.value)) < 300
