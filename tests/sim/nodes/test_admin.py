"""What a change of topics can't know about itself is excused, and nothing else."""

import pytest

from penstock.model.errors import Reason
from tests.sim.linearizability import Operation, is_linearizable
from tests.sim.nodes.admin import OK, excused, topics

CREATE, DELETE, GROW, READ = (
    ("create", "a", 1),
    ("delete", "a", 0),
    ("grow", "a", 2),
    ("read", "a", 0),
)
GONE = Reason.UNKNOWN_TOPIC_OR_PARTITION


def is_explained(*history: Operation) -> bool:
    return is_linearizable(excused(history), topics, 0)


@pytest.mark.parametrize(("deleted_at", "expected"), [(2, True), (12, False)])
def test_a_creation_may_be_repeated_if_a_deletion_came_in_between(
    deleted_at: int, expected: bool
) -> None:
    deletion = Operation(deleted_at, deleted_at + 1, DELETE, OK)
    growth = Operation(20, 21, GROW, OK)
    assert is_explained(Operation(0, 10, CREATE, OK), deletion, growth) is expected


@pytest.mark.parametrize(("other_at", "expected"), [(2, True), (12, False)])
def test_of_two_equal_deletions_both_may_have_done_it(other_at: int, expected: bool) -> None:
    first, second = Operation(1, 10, DELETE, OK), Operation(other_at, other_at + 1, DELETE, OK)
    assert is_explained(Operation(0, 0.5, CREATE, OK), first, second) is expected


def test_what_was_done_is_not_undone() -> None:
    created = Operation(0, 1, CREATE, OK)
    assert is_explained(created, Operation(2, 3, READ, 1))
    assert not is_explained(created, Operation(2, 3, READ, 0))
    assert not is_explained(created, Operation(2, 3, DELETE, GONE))
