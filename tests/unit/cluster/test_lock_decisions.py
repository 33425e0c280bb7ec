"""Who gets a lock: one owner at a time, with a token that nobody had before."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.lock import LOCKS_MAX, Lock, check_lease, check_name, check_owner
from penstock.cluster.lock_decisions import (
    decide_acquisition,
    decide_expiry,
    decide_release,
    decide_renewal,
)
from penstock.cluster.records import (
    ClusterRecord,
    ClusterRecordCodec,
    FencingTokensTaken,
    LockRemoved,
    LockStored,
)
from penstock.cluster.state import ClusterState
from penstock.model.errors import Reason, Refused


def carry_out(
    state: ClusterState, records: "list[ClusterRecord] | tuple[ClusterRecord, ...]"
) -> None:
    for record in records:
        state.apply(record)
    state.validate()


def acquire(state: ClusterState, name: str, owner: str, lease_ms: int = 1_000) -> Lock | None:
    records, acquired = decide_acquisition(state, name, owner, lease_ms)
    carry_out(state, list(records))
    return acquired.lock if acquired.is_granted else None


def test_a_lock_has_one_owner_at_a_time() -> None:
    state = ClusterState()
    first = acquire(state, "a", "one")
    assert first == Lock("a", "one", 1, 1_000)
    assert acquire(state, "a", "two") is None
    assert acquire(state, "b", "two") == Lock("b", "two", 2, 1_000)


def test_an_owner_that_asks_again_keeps_its_token() -> None:
    state = ClusterState()
    acquire(state, "a", "one")
    records, again = decide_acquisition(state, "a", "one", 1_000)
    assert (list(records), again.lock, again.is_granted) == ([], state.locks["a"], True)
    changed = acquire(state, "a", "one", 5_000)
    assert changed == Lock("a", "one", 1, 5_000) == state.locks["a"]


def test_only_the_holder_with_its_token_renews_and_releases() -> None:
    state = ClusterState()
    acquire(state, "a", "one")
    for name, owner, token in (("a", "two", 1), ("a", "one", 2), ("b", "one", 1)):
        for records, outcome in (
            decide_renewal(state, name, owner, token, None),
            decide_release(state, name, owner, token),
        ):
            assert not records
            assert isinstance(outcome, Refused)
            assert outcome.reason is Reason.LOCK_NOT_HELD
    assert decide_renewal(state, "a", "one", 1, None) == ([], state.locks["a"])
    records, _ = decide_renewal(state, "a", "one", 1, 2_000)
    assert records == [LockStored(lock=Lock("a", "one", 1, 2_000))]
    assert decide_release(state, "a", "one", 1)[0] == [LockRemoved(name="a")]


def test_the_end_of_an_earlier_lease_ends_no_later_one() -> None:
    state = ClusterState()
    acquire(state, "a", "one")
    assert not decide_expiry(state, "a", 2)
    assert not decide_expiry(state, "b", 1)
    carry_out(state, list(decide_expiry(state, "a", 1)))
    assert not state.locks


def test_there_are_only_so_many_locks() -> None:
    state = ClusterState()
    for number in range(LOCKS_MAX):
        state.apply(LockStored(lock=Lock(f"l{number}", "one", number + 1, 1_000)))
    with pytest.raises(Refused) as caught:
        decide_acquisition(state, "more", "one", 1_000)
    assert caught.value.reason is Reason.POLICY_VIOLATION
    assert decide_acquisition(state, "l7", "one", 1_000)[1].is_granted


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from("abc"), st.sampled_from(["get", "give", "end", "restart", "compact"])
        )
    )
)
def test_tokens_grow_whatever_is_forgotten(steps: list[tuple[str, str]]) -> None:
    """Through release, expiry, a snapshot, and a log of which compaction left the last of each key,
    tombstones gone."""
    state, log, newest = ClusterState(), list[ClusterRecord](), 0

    def store(records: list[ClusterRecord]) -> None:
        carry_out(state, records)
        log.extend(records)

    for name, step in steps:
        held = state.locks.get(name)
        if step == "get" and held is None:
            records, acquired = decide_acquisition(state, name, "one", 1_000)
            assert acquired.lock is not None
            assert acquired.lock.fencing_token > newest
            newest = acquired.lock.fencing_token
            store(list(records))
        elif step == "give" and held is not None:
            store(list(decide_release(state, name, "one", held.fencing_token)[0]))
        elif step == "end" and held is not None:
            store(list(decide_expiry(state, name, held.fencing_token)))
        elif step == "restart":
            snapshot, state = state.snapshot()(), ClusterState()
            state.restore(snapshot)
        elif step == "compact":
            log, state = _compacted(log), ClusterState()
            carry_out(state, log)


def _compacted(log: list[ClusterRecord]) -> list[ClusterRecord]:
    codec = ClusterRecordCodec()
    last = {codec.encode(record)[0]: record for record in log}
    return [each for each in log if each in last.values() and codec.encode(each)[1] is not None]


def test_records_survive_the_log() -> None:
    codec = ClusterRecordCodec()
    for record in (
        LockStored(lock=Lock("a", "one", 7, 1_000)),
        LockRemoved(name="a"),
        FencingTokensTaken(next_fencing_token=8),
    ):
        assert codec.decode(*codec.encode(record)) == record


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ä", "x" * 201])
def test_bad_names_are_refused(name: str) -> None:
    with pytest.raises(Refused, match="can't be the name of a lock"):
        check_name(name)


def test_good_names_owners_and_leases_pass() -> None:
    check_name("jobs:nightly-1.2_x")
    check_owner("host 1, process 2 ä")
    check_lease(1_000)
    for owner in ("", "a\nb", "x" * 201):
        with pytest.raises(Refused, match="owner"):
            check_owner(owner)
    for lease_ms in (999, 0, -1, 12 * 3_600_000 + 1):
        with pytest.raises(Refused, match="lease"):
            check_lease(lease_ms)
