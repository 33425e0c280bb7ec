"""Tables that fit a terminal: which columns are shown, how wide they are, what is shortened."""

import io

import pytest
from rich.console import Console

from penstock.cli.fitted_table import Column, fitted_table, print_fitted, shortened, widths

COLUMNS = (
    Column(name="name", width_min=6, keeps_end=True),
    Column(name="state", width_min=4),
    Column(name="rows", is_number=True),
    Column(name="rack", rank=2),
    Column(name="role", rank=1),
)
ROWS = [
    ["orders.of.shops-10", "running", "1,000", "west", "voter"],
    ["b", "idle", "7", "", "learner"],
]


def test_needed_columns_come_first_and_the_others_by_rank() -> None:
    whole = {0: 18, 1: 7, 2: 5}
    assert widths(COLUMNS, ROWS, 34) == whole
    assert widths(COLUMNS, ROWS, 43) == {**whole, 4: 7}
    assert widths(COLUMNS, ROWS, 49) == {**whole, 3: 4, 4: 7}
    # The second in rank never takes the place of the first.
    assert widths(COLUMNS, ROWS, 41) == whole


def test_the_first_text_gives_way_before_the_next() -> None:
    assert widths(COLUMNS, ROWS, 30) == {0: 14, 1: 7, 2: 5}
    assert widths(COLUMNS, ROWS, 20) == {0: 6, 1: 5, 2: 5}
    assert widths(COLUMNS, ROWS, 13) == {0: 6, 1: 4}
    assert widths(COLUMNS, ROWS, 3) == {0: 6}


def test_an_empty_column_takes_no_room_unless_it_is_needed() -> None:
    assert widths(COLUMNS, [["a", "", "", "", "voter"]], 80) == {0: 4, 1: 5, 2: 4, 4: 5}
    assert widths(COLUMNS, [], 80) == {0: 4, 1: 5, 2: 4}


@pytest.mark.parametrize(
    ("width", "end_lost", "end_kept"),
    [
        (18, "orders.of.shops-10", "orders.of.shops-10"),
        (12, "orders.of...", "order...s-10"),
        (5, "or...", "o...0"),
        (2, "or", "or"),
        (0, "", ""),
    ],
)
def test_what_is_too_long_is_shortened(width: int, end_lost: str, end_kept: str) -> None:
    assert shortened("orders.of.shops-10", width) == end_lost
    assert shortened("orders.of.shops-10", width, keeps_end=True) == end_kept


def test_each_row_is_one_line() -> None:
    console = Console(file=io.StringIO(), width=30)
    with console.capture() as capture:
        console.print(fitted_table(COLUMNS, ROWS, 30))
    assert [each.rstrip() for each in capture.get().splitlines()] == [
        "name            state     rows",
        "orders...ps-10  running  1,000",
        "b               idle         7",
    ]


def test_what_goes_elsewhere_has_all_columns(capsys: pytest.CaptureFixture[str]) -> None:
    print_fitted(COLUMNS, ROWS)
    assert capsys.readouterr().out.splitlines()[0].split() == [
        column.name.upper() for column in COLUMNS
    ]
