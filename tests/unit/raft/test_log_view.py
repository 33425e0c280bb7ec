"""The tail over the host's log: true for the core at once, and on disk when the write is done."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.model.ids import LogIndex, Term
from penstock.raft.entries import Entry, EntryKind
from penstock.raft.log_view import RaftLog
from tests.unit.raft.groups import entries, entry
from tests.unit.raft.memory_log import MemoryLog


def test_the_tail_hides_what_the_disk_still_holds() -> None:
    log = RaftLog(MemoryLog(entries(1, 1, 1, 1)))
    log.truncate(3)
    log.append([entry(3, 2)])
    assert [log.term_at(index) for index in range(6)] == [0, 1, 1, 2, None, None]
    assert (log.last_index, log.stable_index) == (3, 2)
    _, written = log.take_unwritten(1)
    assert written == (entry(3, 2),)


def test_entries_come_whole_and_at_least_one() -> None:
    view = MemoryLog(entries(1, 1))
    log = RaftLog(view)
    log.append([entry(3, 1, size_bytes=50), entry(4, 1, size_bytes=50)])
    assert [found.index for found in log.entries(1, 1000)] == [1, 2]
    assert [found.index for found in log.entries(3, 10)] == [3]
    assert [found.index for found in log.entries(3, 100)] == [3, 4]


def test_gaps_in_the_tail_are_found_and_cut() -> None:
    log = RaftLog(MemoryLog())
    wide = Entry(LogIndex(5), Term(2), EntryKind.GAP, None, 0, 5)
    log.append([wide, entry(6, 3)])
    assert [log.term_at(index) for index in (1, 5, 6)] == [2, 2, 3]
    assert log.entries(4, 100)[0] == wide._replace(span=2)
    log.truncate(3)
    log.append([entry(3, 4)])
    assert [log.term_at(index) for index in (2, 3)] == [2, 4]
    assert [found.first_index for found in log.take_unwritten(1)[1]] == [1, 3]


def test_data_in_the_tail_is_found_whole() -> None:
    log = RaftLog(MemoryLog([entry(4, 1)._replace(span=4)]))
    log.append([entry(9, 2)._replace(span=5), entry(10, 2), entry(12, 3)._replace(span=2)])
    assert [log.entry_start(index) for index in range(14)] == [
        *(0, 1, 1, 1, 1),
        *(5, 5, 5, 5, 5),
        *(10, 11, 11, 13),
    ]
    assert [log.term_at(index) for index in (4, 5, 9, 11, 12)] == [1, 2, 2, 3, 3]
    assert [found.index for found in log.entries(5, 100)] == [9, 10, 12]
    log.truncate(10)
    assert (log.last_index, log.term_at(10)) == (9, None)


terms = st.lists(st.integers(1, 5), min_size=1, max_size=30).map(sorted)


@given(terms, st.integers(0, 40), st.integers(0, 6), st.integers(0, 30))
def test_the_search_by_term_agrees_with_a_walk(
    log_terms: list[int], high: int, term: int, durable: int
) -> None:
    whole = entries(*log_terms)
    durable = min(durable, len(whole))
    log = RaftLog(MemoryLog(whole[:durable]))
    if whole[durable:]:
        log.append(whole[durable:])
    walked = [0] + [item.index for item in whole if item.index <= high and item.term <= term]
    assert log.last_index_with_term_at_most(high, term) == max(walked)


actions = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 4)),
        st.tuples(st.just("truncate"), st.integers(1, 30)),
        st.tuples(st.just("write"), st.just(0)),
        st.tuples(st.just("sync"), st.integers(0, 3)),
    ),
    max_size=60,
)


@given(actions)
def test_whatever_order_writes_and_truncations_come_in_the_log_reads_the_same(
    steps: list[tuple[str, int]],
) -> None:
    """Against a plain list, with writes that are durable some time after they were handed out."""
    view = MemoryLog()
    log, model, under_way, number, term = (
        RaftLog(view),
        list[Entry](),
        list[tuple[int, tuple[Entry, ...]]](),
        0,
        1,
    )
    for action, value in steps:
        if action == "append" or action == "truncate":
            if action == "truncate" and value <= len(model):
                del model[value - 1 :]
                log.truncate(value)
                term += 1
            new = [
                entry(len(model) + step + 1, term)
                for step in range(value if action == "append" else 1)
            ]
            model += new
            log.append(new)
        elif action == "write" and log.has_unwritten:
            number += 1
            under_way.append((number, log.take_unwritten(number)[1]))
        elif action == "sync" and under_way:
            done, under_way = under_way[: value + 1], under_way[value + 1 :]
            for _, written in done:
                view.store(written)
            log.persisted(done[-1][0])
        assert log.last_index == len(model)
        assert view.items[: log.stable_index] == model[: log.stable_index]
        assert [log.term_at(item.index) for item in model] == [item.term for item in model]
