"""The state of a share coordinator, and who may change it."""

from dataclasses import replace
from random import Random
from uuid import UUID

import pytest

from penstock.model.errors import Reason, Refused
from penstock.model.ids import GroupId, MemberId, TopicId
from penstock.queues.commands import Change, Range, RecordState
from penstock.queues.decisions import (
    Open,
    Write,
    decide_alter,
    decide_initialize,
    decide_open,
    decide_removal,
    decide_write,
    summarize,
)
from penstock.queues.layout import QueueKey
from penstock.queues.records import QueueChanged, QueueRecord, QueueStored
from penstock.queues.state import QueuesState

T = TopicId(UUID(int=7))
KEY = QueueKey(GroupId("workers"), T, 0)
OTHER = QueueKey(GroupId("others"), T, 0)
LEASED = Change(start=0, ranges=(Range(0, 3, RecordState.LEASED, 1, MemberId("m"), 30_000),))
ACKED = Change(start=4, ranges=())


def applied(state: QueuesState, records: list[QueueRecord]) -> QueuesState:
    for record in records:
        state.apply(record)
        state.validate()
    return state


def opened(term: int = 3, opening: int = 1) -> QueuesState:
    state = QueuesState()
    applied(state, decide_initialize(state, {KEY: -1}))
    records, _ = decide_open(state, Open(key=KEY, term=term, opening=opening))
    return applied(state, records)


def write(**changes: object) -> Write:
    fields: dict[str, object] = {
        "key": KEY,
        "term": 3,
        "opening": 1,
        "state_epoch": 0,
        "version": 1,
        "changes": (LEASED,),
    }
    return Write(**(fields | changes))  # type: ignore[arg-type]


def test_a_queue_that_no_group_made_is_not_opened() -> None:
    """Nobody would know of it, so nobody would ever delete it."""
    state = opened()
    with pytest.raises(Refused) as refused:
        decide_open(state, Open(key=OTHER, term=3, opening=1))
    assert refused.value.reason is Reason.GROUP_ID_NOT_FOUND
    assert state.get(OTHER) is None


def test_the_next_change_of_the_newest_opening_is_stored() -> None:
    state = opened()
    applied(state, decide_write(state, write()))
    applied(state, decide_write(state, write(version=2, changes=(ACKED,))))
    (summary,) = summarize(state, [KEY])
    assert (summary.start, summary.leased_count) == (4, 0)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"term": 2}, Reason.FENCED_LEADER_EPOCH),
        ({"term": 4}, Reason.FENCED_STATE_EPOCH),
        ({"opening": 0}, Reason.FENCED_STATE_EPOCH),
        ({"opening": 2}, Reason.FENCED_STATE_EPOCH),
        ({"state_epoch": 1}, Reason.FENCED_STATE_EPOCH),
        ({"version": 0}, Reason.FENCED_STATE_EPOCH),
        ({"version": 2}, Reason.FENCED_STATE_EPOCH),
        ({"key": OTHER}, Reason.FENCED_STATE_EPOCH),
        ({"changes": ()}, Reason.INVALID_REQUEST),
        # The start moves back only to what is brought back, with everything in between.
        ({"changes": (ACKED, Change(start=0))}, Reason.INVALID_REQUEST),
        ({"changes": (ACKED, replace(LEASED, start=1, ranges=()))}, Reason.INVALID_REQUEST),
    ],
)
def test_any_other_change_is_refused(change: dict[str, object], reason: Reason) -> None:
    with pytest.raises(Refused) as refused:
        decide_write(opened(), write(**change))
    assert refused.value.reason is reason


def test_a_removed_and_made_queue_takes_nothing_of_its_former_leader() -> None:
    state = opened()
    applied(state, decide_removal(state, [KEY])[0])
    applied(state, decide_initialize(state, {KEY: 0}))
    with pytest.raises(Refused):
        decide_write(state, write())


def test_a_queue_that_is_known_is_not_initialized_again() -> None:
    state = opened()
    applied(state, decide_write(state, write(changes=(ACKED,))))
    assert decide_initialize(state, {KEY: 0}) == []


def test_an_initial_start_beats_the_setting_of_a_leader_that_came_first() -> None:
    state = opened()
    applied(state, decide_initialize(state, {KEY: 0}))
    with pytest.raises(Refused) as refused:
        # The leader has resolved "latest" meanwhile.
        decide_write(state, write(changes=(Change(start=100),)))
    assert refused.value.reason is Reason.FENCED_STATE_EPOCH
    (summary,) = summarize(state, [KEY])
    assert summary.start == 0


def test_a_moved_start_makes_void_what_the_leader_knows() -> None:
    state = opened()
    records, outcomes = decide_alter(state, {KEY: 7, OTHER: 8})
    applied(state, records)
    assert outcomes == {KEY: None, OTHER: None}
    assert [each.start for each in summarize(state, [KEY, OTHER])] == [7, 8]
    with pytest.raises(Refused) as refused:
        decide_write(state, write())
    assert refused.value.reason is Reason.FENCED_STATE_EPOCH


def test_a_queue_with_leases_is_neither_moved_nor_removed() -> None:
    state = opened()
    applied(state, decide_write(state, write()))
    for records, outcomes in (decide_alter(state, {KEY: 7}), decide_removal(state, [KEY])):
        assert records == []
        refused = outcomes[KEY]
        assert refused is not None
        assert refused.reason is Reason.NON_EMPTY_GROUP


def test_a_queue_that_is_stored_as_it_is_stays_the_same() -> None:
    """It is not built again: it may have a million ranges."""
    state = opened()
    applied(state, decide_write(state, write()))
    queue = state.get(KEY)
    assert queue is not None
    applied(state, [queue.stored()])
    assert state.get(KEY) is queue
    applied(state, [replace(queue.stored(), whole=ACKED)])
    (summary,) = summarize(state, [KEY])
    assert (summary.start, summary.leased_count) == (4, 0)


def test_a_snapshot_brings_everything_back() -> None:
    state = opened()
    applied(state, decide_write(state, write()))
    applied(state, decide_initialize(state, {OTHER: -1}))
    again = QueuesState()
    encode = state.snapshot()
    applied(state, decide_removal(state, [OTHER])[0])
    again.restore(encode())
    again.validate()
    assert whole(again) == {
        KEY: (3, 1, 0, 1, LEASED),
        OTHER: (-1, 0, 0, 0, Change(start=-1)),
    }


@pytest.mark.parametrize("data", [b"", b"\x02\0\0\0\0", b"\x01\0\0\0\x01", b"\x01\0\0\0\0x"])
def test_bytes_that_are_no_snapshot_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="queue"):
        QueuesState().restore(data)


def whole(state: QueuesState) -> dict[QueueKey, object]:
    found: dict[QueueKey, object] = {}
    for key in state:
        queue = state.get(key)
        assert queue is not None
        stored = queue.stored()
        numbers = (stored.term, stored.opening, stored.state_epoch, stored.version)
        found[key] = (*numbers, stored.whole)
    return found


def test_a_log_that_was_cut_before_the_oldest_whole_record_says_the_same() -> None:
    random = Random(3)
    keys = [KEY._replace(partition=number) for number in range(5)]
    state, log = QueuesState(), []
    whole_at: dict[QueueKey, int] = {}
    for _ in range(2_000):
        records = history_step(state, random.choice(keys), random)
        for record in records:
            if isinstance(record, QueueStored):
                whole_at[record.key] = len(log)
            log.append(record)
            state.apply(record)
    live = [whole_at[key] for key in state]
    for cut in (0, min(live) // 2, min(live)):
        replayed = QueuesState()
        for record in log[cut:]:
            replayed.apply(record)
        replayed.validate()
        assert whole(replayed) == whole(state)


def history_step(state: QueuesState, key: QueueKey, random: Random) -> list[QueueRecord]:
    queue = state.get(key)
    if queue is None:
        return decide_initialize(state, {key: 0})
    chance = random.random()
    if chance < 0.01:
        return decide_removal(state, [key])[0]
    if chance < 0.05:
        return [queue.stored()]
    if chance < 0.1:
        return decide_open(state, Open(key=key, term=queue.term + 1, opening=1))[0]
    start = queue.start
    ranges = (Range(start, start + 3, RecordState.AVAILABLE, random.randrange(5)),)
    change = Change(start=start + random.randrange(2), ranges=())
    changes = (Change(start=start, ranges=ranges), change)
    return [QueueChanged(key=key, version=queue.version + 1, changes=changes)]
