"""Proves that offsets and indices belong together: index = offset + own entries before it + 1."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.model.ids import Offset
from penstock.replication.index_offsets import IndexOffsets
from penstock.replication.log_starts import LogStarts


@given(st.lists(st.booleans(), max_size=60), st.integers(0, 60), st.integers(0, 60))
def test_it_counts_own_entries(is_own: list[bool], settled: int, cut: int) -> None:
    offsets = IndexOffsets(0, 0)
    expected = [0]
    for index, own in enumerate(is_own, 1):
        if own:
            offsets.note_own(index)
        expected.append(expected[-1] + (not own))
    settled = min(settled, len(is_own))
    cut = max(settled + 1, min(cut, len(is_own) + 1))
    offsets.settle(settled)
    assert [offsets.after(index) for index in range(settled, len(expected))] == expected[settled:]
    offsets.truncate(cut)
    assert [offsets.after(index) for index in range(settled, cut)] == expected[settled:cut]
    offsets.reset(100, 90)
    assert offsets.after(103) == 93


def test_log_starts_take_effect_when_they_are_committed() -> None:
    starts = LogStarts()
    starts.note(5, Offset(3))
    starts.note(8, Offset(6))
    starts.note(9, Offset(4))
    assert starts.newest == 6
    assert not starts.apply(4)
    assert starts.apply(5)
    starts.truncate(9)
    assert starts.apply(20)
    assert (starts.committed, starts.newest) == (6, 6)
    assert not starts.apply(30)
