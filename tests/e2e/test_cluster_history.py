"""Proves that the checker of histories finds what it is there for."""

from dataclasses import dataclass, field

import pytest

from tests.e2e.cluster_history import AckedPlace, Stored, check_log, check_reads, longest_pause


@dataclass
class Told:
    """A writer's word, made up."""

    acknowledged: dict[bytes, AckedPlace] = field(
        default_factory=lambda: {b"w:0": (0, 0), b"w:1": (0, 1), b"w:2": (0, 2)}
    )
    failures: list[str] = field(default_factory=list)
    sent: int = 3


def log_of(*numbers: int) -> dict[int, list[Stored]]:
    return {0: [Stored(at, b"k", f"w:{number}".encode()) for at, number in enumerate(numbers)]}


def test_a_good_history_passes() -> None:
    check_log([Told()], log_of(0, 1, 2))
    check_reads({(0, 1): {b"w:1"}}, log_of(0, 1, 2))


def test_a_lost_record_is_found() -> None:
    with pytest.raises(AssertionError, match="1 acknowledged records are not where they were"):
        check_log([Told()], log_of(0, 1))


def test_a_record_that_was_acknowledged_without_an_offset_may_be_anywhere_in_its_partition() -> (
    None
):
    told = Told({b"w:0": (0, 0), b"w:1": (0, None), b"w:2": (0, 2)})
    check_log([told], log_of(0, 1, 2))
    with pytest.raises(AssertionError, match="1 acknowledged records are not where they were"):
        check_log([told], {0: [log_of(0, 1, 2)[0][0], log_of(0, 1, 2)[0][2]]})
    elsewhere = {1: log_of(0, 1, 2)[0]}
    with pytest.raises(AssertionError, match="3 acknowledged records are not where they were"):
        check_log([told], elsewhere)


def test_a_record_in_the_log_twice_is_found() -> None:
    with pytest.raises(AssertionError, match="twice"):
        check_log([Told()], log_of(0, 1, 2, 2))


def test_a_broken_order_is_found() -> None:
    told = Told({b"w:0": (0, 0), b"w:2": (0, 1), b"w:1": (0, 2)})
    with pytest.raises(AssertionError, match="1 comes after 2"):
        check_log([told], log_of(0, 2, 1))


def test_a_refused_or_unanswered_record_is_found() -> None:
    with pytest.raises(AssertionError, match="fatal"):
        check_log([Told(failures=["fatal"])], log_of(0, 1, 2))
    with pytest.raises(AssertionError):
        check_log([Told(sent=4)], log_of(0, 1, 2))


def test_a_record_that_was_read_and_taken_back_is_found() -> None:
    with pytest.raises(AssertionError, match="read 1 records that the log does not hold"):
        check_reads({(0, 1): {b"w:1", b"w:9"}}, log_of(0, 1, 2))
    with pytest.raises(AssertionError, match="read 1 records that the log does not hold"):
        check_reads({(0, 7): {b"w:7"}}, log_of(0, 1, 2))


def test_the_longest_pause_reaches_to_the_end() -> None:
    assert longest_pause([[1.0, 2.0], [4.0]], 5.0) == 2.0
    assert longest_pause([[1.0], []], 9.0) == 8.0
