"""A snapshot says which kinds of records its version knew; one that knew fewer is not believed.

A version skips the records that it does not know, and its snapshot lacks them. A later version on
the same disk has to read them from the log, or their groups would be lost without a trace.
"""

import struct
from pathlib import Path

import pytest

from penstock.groups import state as state_module
from penstock.groups.records import FIRST_KINDS, KINDS, GroupMetadata, GroupStored
from penstock.groups.state import GroupsState
from penstock.model.ids import GroupId, MemberId, Offset
from penstock.replication.state_files import StateFile
from penstock.storage.file_system import RealFileSystem

G = GroupId("readers")
EMPTY = GroupStored(
    G,
    GroupMetadata(
        protocol_type="consumer",
        generation=3,
        protocol="range",
        leader=MemberId("m"),
        state_timestamp_ms=7,
    ),
)


def stored() -> GroupsState:
    state = GroupsState()
    state.apply(EMPTY)
    return state


def test_a_snapshot_of_the_same_version_is_restored() -> None:
    state = GroupsState()
    state.restore(stored().snapshot()())
    assert state.metadata(G) == EMPTY.metadata


def test_a_snapshot_that_knew_fewer_kinds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = stored().snapshot()()
    monkeypatch.setattr(state_module, "KINDS", KINDS | {99})
    with pytest.raises(ValueError, match="99"):
        GroupsState().restore(data)


def test_a_snapshot_that_knew_more_kinds_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as later:
        later.setattr(state_module, "KINDS", KINDS | {99})
        data = stored().snapshot()()
    state = GroupsState()
    state.restore(data)
    assert state.metadata(G) == EMPTY.metadata


def test_the_first_snapshots_name_no_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    data = stored().snapshot()()
    unnamed = data[struct.calcsize(">ii") + len(KINDS) * struct.calcsize(">h") :]
    monkeypatch.setattr(state_module, "KINDS", FIRST_KINDS)
    for held in (unnamed, b""):
        GroupsState().restore(held)
    monkeypatch.setattr(state_module, "KINDS", FIRST_KINDS | {3})
    for held in (unnamed, b""):
        with pytest.raises(ValueError, match="3"):
            GroupsState().restore(held)


def test_the_log_is_replayed_instead_of_a_snapshot_that_knew_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = StateFile(tmp_path / "groups.snapshot", GroupsState, RealFileSystem())
    file.write(stored().snapshot(), Offset(10))
    monkeypatch.setattr(state_module, "KINDS", KINDS | {99})
    state, offset = file.restore(Offset(4), Offset(20))
    assert offset == 4
    assert list(state.group_ids()) == []
    # It is gone for good: the earlier version would otherwise find it again.
    assert not (tmp_path / "groups.snapshot").exists()
