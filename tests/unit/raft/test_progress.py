"""A follower's progress: what is in flight, and how far to go back after a rejection."""

from penstock.raft.progress import Progress, ProgressState
from penstock.raft.settings import RaftSettings
from tests.unit.raft.groups import rid

SETTINGS = RaftSettings(appends_in_flight_max=2, bytes_in_flight_max=100)


def replicating(match_index: int) -> Progress:
    progress = Progress(rid(2), match_index + 1)
    progress.acknowledge(match_index)
    progress.replicate()
    return progress


def test_a_probe_is_one_append_at_a_time() -> None:
    progress = Progress(rid(2), 5)
    assert progress.may_send(SETTINGS)
    progress.sent(9, 10)
    assert (progress.may_send(SETTINGS), progress.next_index) == (False, 5)


def test_acknowledgements_free_the_window_up_to_their_index() -> None:
    progress = replicating(4)
    progress.sent(6, 40)
    progress.sent(8, 40)
    assert not progress.may_send(SETTINGS)
    assert progress.acknowledge(7)
    assert (progress.appends_in_flight, progress.bytes_in_flight) == (1, 40)
    assert not progress.acknowledge(7), "the same acknowledgement again brings nothing"
    assert progress.may_send(SETTINGS)


def test_a_rejection_goes_back_to_where_the_logs_may_agree_but_never_below_the_match() -> None:
    progress = Progress(rid(2), 20)
    assert progress.reject(19, 7)
    assert progress.next_index == 8
    assert not progress.reject(19, 3), "an answer to a probe that is over"
    progress = replicating(10)
    progress.sent(15, 1)
    assert not progress.reject(9, 2), "what is below the match was settled before"
    assert progress.reject(15, 2)
    assert (progress.state, progress.next_index) == (ProgressState.PROBE, 11)


def test_nothing_is_sent_during_a_snapshot() -> None:
    progress = replicating(3)
    progress.await_snapshot()
    assert not progress.may_send(SETTINGS)
    assert not progress.reject(5, 4)


def test_where_the_logs_may_agree_is_no_proof_that_a_follower_holds_anything() -> None:
    """It lost something: counting it at the hint would commit what it may not have."""
    progress = replicating(10)
    progress.probe()
    assert progress.reject(progress.next_index - 1, 6)
    assert (progress.match_index, progress.next_index) == (0, 7)
