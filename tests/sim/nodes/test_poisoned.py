"""`kill -9` after every step of the way of a poisonous message loses and doubles nothing."""

import pytest

from tests.sim.nodes.poisoned import PoisonedLife, lives_with_a_death

# All that may be true of the message when a node dies: what its queue says of it, what is stored of
# its letters, and what lies in the two topics.
PLACES = {
    "new": "none, sent 0, back 0, 0 letters, 3 records",
    "leased": "LEASED 1, sent 0, back 0, 0 letters, 3 records",
    "given back": "AVAILABLE 1, sent 0, back 0, 0 letters, 3 records",
    "leased for the last time": "LEASED 2, sent 0, back 0, 0 letters, 3 records",
    "dying": "DYING 2, sent 0, back 0, 0 letters, 3 records",
    "planned": "DYING 2, sent 0, back 0, planned, 0 letters, 3 records",
    "appended": "DYING 2, sent 0, back 0, planned, 1 letters, 3 records",
    "dead": "none, sent 1, back 0, 1 letters, 3 records",
    "reopened": "AVAILABLE 0, sent 1, back 1, 1 letters, 3 records",
    "leased again": "LEASED 1, sent 1, back 1, 1 letters, 3 records",
    "given back again": "AVAILABLE 1, sent 1, back 1, 1 letters, 3 records",
    "leased again for the last time": "LEASED 2, sent 1, back 1, 1 letters, 3 records",
    "dying again": "DYING 2, sent 1, back 1, 1 letters, 3 records",
    "planned again": "DYING 2, sent 1, back 1, planned, 1 letters, 3 records",
    "appended again": "DYING 2, sent 1, back 1, planned, 2 letters, 3 records",
    "dead again": "none, sent 2, back 1, 2 letters, 3 records",
    "to be copied": "none, sent 2, back 2, copying, 2 letters, 3 records",
    "appended as a copy": "none, sent 2, back 2, copying, 2 letters, 4 records",
    "copied": "none, sent 2, back 2, 2 letters, 4 records",
    "leased as a copy": "LEASED 1, copy, sent 2, back 2, 2 letters, 4 records",
}


def test_a_life_without_a_death_goes_as_it_is_written() -> None:
    seen = PoisonedLife(3).execute()
    assert seen.attempts == [[1, 2], [1, 2], [1]]
    assert not seen.lost


def test_one_node_dies_at_every_step() -> None:
    found = [seen.died_at for seen in lives_with_a_death(1, 1)]
    assert set(found) == set(PLACES.values())


def test_one_node_loses_its_power_at_every_step() -> None:
    found = [seen.died_at for seen in lives_with_a_death(1, 1, lost_power=True)]
    assert set(found) == set(PLACES.values())


@pytest.mark.slow
@pytest.mark.parametrize("node", [1, 2, 3])
def test_each_of_three_nodes_dies_at_every_step(node: int) -> None:
    found = [seen.died_at for seen in lives_with_a_death(3, node)]
    assert len(found) > 80
    assert set(found) <= set(PLACES.values())
    # Nothing is stored without the others, so the same is true of each of them.
    assert len(set(found)) >= len(PLACES) - 2


@pytest.mark.soak
@pytest.mark.parametrize("node", [1, 2, 3])
def test_each_of_three_nodes_loses_its_power_at_every_step(node: int) -> None:
    assert all(seen.has_died for seen in lives_with_a_death(3, node, lost_power=True))


def test_one_node_dies_at_every_step_around_the_loss_of_the_dead_letter_topic() -> None:
    found = list(lives_with_a_death(1, 1, loses_letters_topic=True))
    assert len(found) > len(PLACES)
