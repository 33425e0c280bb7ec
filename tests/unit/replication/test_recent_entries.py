"""Proves that what is kept in memory is what the log holds, and that it stays within its bound."""

from penstock.model.ids import LogIndex, Term
from penstock.raft.entries import Entry, EntryKind
from penstock.replication.recent_entries import RecentEntries


def entry(index: int, span: int = 1, size: int = 100) -> Entry:
    return Entry(LogIndex(index), Term(1), EntryKind.DATA, b"", size, span)


def test_reads_begin_at_an_entry_and_end_where_they_are_told() -> None:
    group = RecentEntries().group()
    entries = [entry(12, 3), entry(13), entry(20, 7)]
    group.add(entries)
    assert group.read(10, 21, 1 << 20) == entries
    assert group.read(13, 21, 1 << 20) == entries[1:]
    assert group.read(10, 20, 1 << 20) == entries[:2]
    assert group.read(10, 21, 150) == entries[:1]
    assert group.read(10, 21, 1) == entries[:1]
    assert group.read(9, 21, 1 << 20) == []
    assert group.read(11, 21, 1 << 20) == []
    assert group.read(21, 22, 1 << 20) == []


def test_what_is_truncated_or_does_not_follow_is_not_there_any_more() -> None:
    group = RecentEntries().group()
    group.add([entry(1), entry(2), entry(3)])
    group.truncate(3)
    assert group.read(3, 10, 1 << 20) == []
    other = entry(3)
    group.add([other])
    assert group.read(2, 10, 1 << 20)[1] is other
    group.add([entry(9)])
    assert group.read(2, 10, 1 << 20) == []
    assert group.read(9, 10, 1 << 20) == [entry(9)]


def test_the_oldest_of_all_groups_goes_first() -> None:
    recent = RecentEntries(bytes_max=4_000)
    first, second = recent.group(), recent.group()
    first.add([entry(1, size=600), entry(2, size=600)])
    second.add([entry(1, size=600)])
    first.add([entry(3, size=600)])
    assert first.read(1, 9, 1 << 20)
    second.add([entry(2, size=600)])
    assert first.read(1, 9, 1 << 20) == []
    assert [kept.index for kept in first.read(2, 9, 1 << 20)] == [2, 3]
    for index in range(3, 5_000):
        second.add([entry(index, size=600)])
    assert first.read(3, 9, 1 << 20) == []
    assert [kept.index for kept in second.read(4_997, 6_000, 1 << 20)] == [4_997, 4_998, 4_999]
    assert second.read(4_995, 6_000, 1 << 20) == []


def test_what_all_followers_hold_takes_no_room() -> None:
    recent = RecentEntries()
    first, second = recent.group(), recent.group()
    first.add([entry(index) for index in range(1, 11)])
    second.add([entry(index) for index in range(1, 11)])
    first.settle(4)
    assert first.read(4, 20, 1 << 20) == []
    assert [kept.index for kept in first.read(5, 20, 1 << 20)] == [5, 6, 7, 8, 9, 10]
    first.settle(10)
    second.truncate(3)
    second.clear()
    assert recent.bytes_kept == 0
