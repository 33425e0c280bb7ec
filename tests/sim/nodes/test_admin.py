"""Every change of topics takes effect once, or not at all, whatever an administrator hears."""

import pytest

from penstock.model.errors import Reason
from tests.sim.linearizability import NEVER, UNKNOWN, Operation, is_linearizable
from tests.sim.nodes.admin import OK, topics

CREATE, DELETE, GROW, READ = (
    ("create", "a", 1),
    ("delete", "a", 0),
    ("grow", "a", 2),
    ("read", "a", 0),
)
GONE = Reason.UNKNOWN_TOPIC_OR_PARTITION


def is_explained(*history: Operation) -> bool:
    return is_linearizable(history, topics, 0)


@pytest.mark.parametrize(("returned", "result"), [(10, OK), (NEVER, UNKNOWN)])
def test_a_creation_is_not_repeated_after_a_deletion(returned: float, result: object) -> None:
    creation = Operation(0, returned, CREATE, result)
    deletion = Operation(2, 3, DELETE, OK)
    assert is_explained(creation, deletion, Operation(4, 5, READ, 0))
    assert not is_explained(creation, deletion, Operation(4, 5, READ, 1))


def test_of_two_equal_deletions_one_did_it() -> None:
    created = Operation(0, 0.5, CREATE, OK)
    first, second = Operation(1, 10, DELETE, OK), Operation(2, 3, DELETE, OK)
    assert not is_explained(created, first, second)
    assert is_explained(created, first, second._replace(result=GONE))


def test_of_two_equal_growths_one_did_it() -> None:
    created = Operation(0, 0.5, CREATE, OK)
    first, second = Operation(1, 10, GROW, OK), Operation(2, 3, GROW, OK)
    assert not is_explained(created, first, second)
    assert is_explained(created, first, second._replace(result=Reason.INVALID_PARTITIONS))


def test_what_was_done_is_not_undone() -> None:
    created = Operation(0, 1, CREATE, OK)
    assert is_explained(created, Operation(2, 3, READ, 1))
    assert not is_explained(created, Operation(2, 3, READ, 0))
    assert not is_explained(created, Operation(2, 3, DELETE, GONE))
