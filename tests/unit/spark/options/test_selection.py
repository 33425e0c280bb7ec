"""Proves that exactly one option says what is read, and how each is understood."""

import pytest

from penstock.spark.options.errors import OptionError
from penstock.spark.options.given import Given
from penstock.spark.options.selection import Assigned, Pattern, Selection, Topics, read_selection


def select(**options: str) -> Selection:
    return read_selection(Given.of(options))


def test_subscribe_takes_a_list_in_which_blanks_and_repetitions_mean_nothing() -> None:
    assert select(subscribe=" orders, clicks,,orders ") == Topics(("orders", "clicks"))


def test_a_pattern_is_found_anywhere_in_a_name() -> None:
    pattern = select(subscribePattern=" order.* ")
    assert pattern == Pattern("order.*")
    assert isinstance(pattern, Pattern)
    assert pattern.matches("my-orders")
    assert not pattern.matches("clicks")
    assert not Pattern("^order").matches("my-orders")


def test_assign_names_partitions() -> None:
    chosen = select(assign='{"orders": [2, 0, 2], "clicks": [1], "none": []}')
    assert chosen == Assigned({"orders": (0, 2), "clicks": (1,)})


def test_none_of_them_is_refused() -> None:
    with pytest.raises(OptionError, match="subscribe, subscribePattern or assign must be set"):
        select()


def test_two_of_them_are_refused() -> None:
    with pytest.raises(OptionError, match=r"Only one of .* not subscribe and assign"):
        select(subscribe="orders", assign='{"orders": [0]}')


@pytest.mark.parametrize("text", ["", " , ,"])
def test_a_list_of_no_topic_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="The option subscribe does not name a topic"):
        select(subscribe=text)


@pytest.mark.parametrize(
    ("text", "reason"), [("", "is empty"), ("order(", "is not a regular expression")]
)
def test_a_wrong_pattern_is_refused(text: str, reason: str) -> None:
    with pytest.raises(OptionError, match=f"The option subscribePattern {reason}"):
        select(subscribePattern=text)


@pytest.mark.parametrize("text", ["{}", '{"orders": []}'])
def test_an_assignment_of_nothing_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="The option assign does not name a partition"):
        select(assign=text)


@pytest.mark.parametrize(
    "text",
    [
        "orders",
        "",
        "[0]",
        "null",
        '{"orders": 0}',
        '{"orders": ["0"]}',
        '{"orders": [-1]}',
        '{"orders": [1.0]}',
        '{"orders": [true]}',
        '{"orders": [0], "orders": [1]}',
        '{"orders": [2147483648]}',
        "[" * 100_000,
    ],
)
def test_an_assignment_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="The option assign must be JSON such as"):
        select(assign=text)
