"""Proves that producer states go back with the log, and that snapshots are of one moment of it."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.records.batch import BatchHeader, parse_header
from penstock.replication.producer_ledger import ProducerLedger
from penstock.replication.producer_states import ProducerStates
from tests.unit.clocks import ManualClock

from .rig import batch

Steps = list[tuple[int, int]]
steps = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), max_size=30)


def headers(taken: Steps) -> list[BatchHeader]:
    """One batch of one record each; now and then a producer begins a new epoch."""
    epochs: dict[int, int] = {}
    sequences: dict[int, int] = {}
    found = []
    for producer_id, bump in taken:
        if bump:
            epochs[producer_id] = epochs.get(producer_id, 0) + 1
            sequences[producer_id] = 0
        sequence = sequences.get(producer_id, 0)
        sequences[producer_id] = sequence + 1
        epoch = epochs.get(producer_id, 0)
        one = batch(b"x", producer_id=producer_id, epoch=epoch, sequence=sequence)
        found.append(parse_header(one))
    return found


def ledger_of(found: list[BatchHeader]) -> ProducerLedger:
    ledger = ProducerLedger()
    for offset, header in enumerate(found):
        ledger.record(header, offset, 0)
    return ledger


def contents(states: ProducerStates) -> dict[int, object]:
    return dict(states.active())


def restored(data: bytes) -> dict[int, object]:
    states = ProducerStates()
    states.restore(data)
    return contents(states)


@given(steps, st.integers(0, 30))
def test_rolling_back_equals_never_having_seen_it(taken: Steps, cut: int) -> None:
    found = headers(taken)
    ledger = ledger_of(found)
    ledger.roll_back(cut, ManualClock())
    assert contents(ledger.states) == contents(ledger_of(found[:cut]).states)


@given(steps, st.integers(0, 30))
def test_a_snapshot_is_of_what_is_settled(taken: Steps, settled: int) -> None:
    found = headers(taken)
    ledger = ledger_of(found)
    ledger.settle(settled)
    snapshot = ledger.settled_snapshot()
    # Whatever happens before a worker thread makes bytes of it.
    ledger.roll_back(0, ManualClock())
    assert restored(snapshot()) == contents(ledger_of(found[:settled]).states)


@given(steps, st.integers(0, 30))
def test_a_snapshot_before_an_offset_and_the_data_behind_it_give_the_whole(
    taken: Steps, start: int
) -> None:
    found = headers(taken)
    ledger = ledger_of(found)
    other = ProducerLedger()
    other.restore(ledger.states.snapshot_before(start))
    for offset, header in enumerate(found[start:], start):
        other.record(header, offset, 0)
    assert contents(other.states) == contents(ledger.states)
