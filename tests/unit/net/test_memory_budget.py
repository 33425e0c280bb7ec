"""The budget's promises: bounded, in order, never stuck."""

from penstock.net.memory_budget import Claim, MemoryBudget

RESERVE = 10


class Holder:
    """A claim that remembers how often it was told of room."""

    def __init__(self, budget: MemoryBudget) -> None:
        self.told = 0
        self.claim: Claim = budget.claim(self._on_room)

    def _on_room(self) -> None:
        self.told += 1


def make(bytes_max: int = 100, holders: int = 3) -> tuple[MemoryBudget, list[Holder]]:
    budget = MemoryBudget(bytes_max=bytes_max, reserve_bytes=RESERVE)
    return budget, [Holder(budget) for _ in range(holders)]


def test_growth_is_granted_while_there_is_room() -> None:
    budget, (a, b, _) = make()
    assert a.claim.grow(60)
    assert b.claim.grow(40)
    assert budget.used == 100
    assert budget.is_spent


def test_first_waiter_overdraws_and_the_next_waits_for_it() -> None:
    """Half-received frames that fill the budget can't block each other forever."""
    budget, (a, b, c) = make()
    assert a.claim.grow(50)
    assert b.claim.grow(50)
    assert a.claim.grow(30), "somebody must be able to complete its frame"
    assert a.claim.grow(30), "and to go on growing until it has"
    assert not b.claim.grow(30)
    assert not c.claim.grow(30)
    a.claim.give_back(60)
    assert (b.told, c.told) == (1, 0), "the first in line is served first"
    assert b.claim.held == 80
    assert budget.used == 130
    a.claim.give_back(50)
    assert c.told == 1
    assert budget.used == 110


def test_waiters_are_served_in_order_when_bytes_come_back() -> None:
    _, (a, b, c) = make()
    assert a.claim.grow(100)
    assert b.claim.grow(1), "the overdraft"
    assert not c.claim.grow(90)
    d_told_before = c.told
    a.claim.give_back(100)
    assert c.told == d_told_before + 1
    assert c.claim.held == 90
    assert c.claim.wanted == 0


def test_small_growth_does_not_overtake_a_large_one_in_line() -> None:
    budget, (a, b, c) = make()
    assert a.claim.grow(95)
    assert b.claim.grow(10), "the overdraft"
    assert not c.claim.grow(50)
    late = Holder(budget)
    assert not late.claim.grow(1)
    assert not late.claim.grow_if_free(1)


def test_a_closed_claim_gives_all_back_and_leaves_the_line() -> None:
    budget, (a, b, c) = make()
    assert a.claim.grow(100)
    assert b.claim.grow(10), "the overdraft"
    assert not c.claim.grow(10)
    c.claim.close()
    b.claim.close()
    a.claim.close()
    assert budget.used == 0
    assert not budget.is_spent
    assert c.told == 0


def test_the_overdraft_passes_on_when_its_holder_is_reaped() -> None:
    _, (a, b, c) = make()
    assert a.claim.grow(100)
    assert b.claim.grow(50), "the overdraft"
    assert not c.claim.grow(50)
    b.claim.close()
    assert c.told == 1
    assert c.claim.held == 50


def test_those_who_wait_to_read_are_told_once_when_there_is_room() -> None:
    _, (a, b, c) = make()
    assert a.claim.grow(100)
    a.claim.charge(50)
    b.claim.wait_to_read()
    c.claim.wait_to_read()
    c.claim.close()
    a.claim.give_back(50)
    assert b.told == 0
    a.claim.give_back(50)
    a.claim.give_back(50)
    assert (b.told, c.told) == (1, 0)


def test_charges_are_never_refused() -> None:
    budget, (a, _, _) = make()
    a.claim.charge(500)
    assert budget.used == 500
    a.claim.give_back(500)
    assert budget.used == 0
