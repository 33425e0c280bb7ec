"""Proves that a replay knows itself again, and says where it can't go."""

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import pytest

from penstock.client.errors import TopicNotFound, no_answer
from penstock.client.wire.cluster import WireCluster
from penstock.pipelines.archives.ledger import Span
from penstock.pipelines.archives.refusals import ArchiveRefused
from penstock.pipelines.archives.replay_note import ReplayNote, State, notes, write_note
from penstock.pipelines.archives.replay_target import check_target, settings_of, target_topic
from penstock.pipelines.archives.replaying import Archived, Replaying, ReplayWanted
from penstock.pipelines.archives.selection import Selection
from penstock.pipelines.archives.topic_facts import TopicFacts
from tests.unit.pipelines.archives.rig import TestArchive

TARGET = TopicFacts(name="target", topic_id="id-1", partitions=2, settings={}, own_settings={})


class Ends:
    """A cluster whose partitions end somewhere."""

    def __init__(self, end: int) -> None:
        self.end = end

        self.is_away = False

    def latest(self, places: Iterable[Any]) -> dict[Any, int]:
        if self.is_away:
            raise no_answer("unused:1", "connection refused")
        return dict.fromkeys(places, self.end)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    TestArchive(tmp_path).filled()
    return tmp_path


def replaying(
    root: Path,
    end: int = 0,
    target: TopicFacts = TARGET,
    selection: Selection | None = None,
    **given: Any,
) -> Replaying:
    wanted = ReplayWanted(
        root=root, bootstrap="unused:1", selection=selection or Selection(), **given
    )
    return Replaying(wanted, Archived(root), target, cast(WireCluster, Ends(end)))


def finish(root: Path, note: ReplayNote) -> None:
    write_note(root, dataclasses.replace(note, state=State.FINISHED))


def test_a_replay_that_was_killed_is_known_again_though_the_archive_has_grown(root: Path) -> None:
    first = replaying(root, end=7)
    assert not first.is_resumed
    assert first.note.spans == (
        Span(partition=0, start=0, stop=30),
        Span(partition=1, start=5, stop=15),
    )
    assert dict(first.note.bases) == {0: 7, 1: 7}
    assert first.rows_max == 40
    archive = TestArchive(root)
    archive.batch = 3
    archive.add(archive.receipt(0, 30, 99))
    again = replaying(root, end=20)
    assert again.is_resumed
    assert again.note == first.note
    assert again.tasks == first.tasks
    assert again.written() == 26


def test_what_is_shown_of_a_replay_stays_while_brokers_are_away(root: Path) -> None:
    archived, ends = Archived(root), Ends(7)
    wanted = ReplayWanted(root=root, bootstrap="unused:1")
    replay = Replaying(wanted, archived, TARGET, cast(WireCluster, ends))
    ends.end = 9
    assert replay.written() == 4
    ends.is_away = True
    assert replay.written() == 4


def test_a_finished_replay_is_done_again_only_if_that_is_asked_for(root: Path) -> None:
    first = replaying(root)
    finish(root, first.note)
    with pytest.raises(ArchiveRefused, match="target; with --again all records would be there"):
        replaying(root)
    again = replaying(root, end=40, is_again=True)
    assert not again.is_resumed
    assert dict(again.note.bases) == {0: 40, 1: 40}
    # If that one is killed, the command goes on with it, with or without the word.
    assert replaying(root, end=50).note == replaying(root, is_again=True).note == again.note
    # A topic of the same name that was created again holds nothing of it, and its records are
    # others.
    assert not replaying(root, target=dataclasses.replace(TARGET, topic_id="id-2")).is_resumed
    assert not replaying(root, selection=Selection(until_offset={None: 5})).is_resumed


def test_another_selection_abandons_what_was_unfinished(root: Path) -> None:
    first = replaying(root)
    other = replaying(root, end=3, selection=Selection(from_offset={0: 20}, from_ms=5))
    states = {note.replay: note.state for note in notes(root)}
    assert states == {first.note.replay: State.ABANDONED, other.note.replay: State.UNFINISHED}
    assert [(task.stretch.start, task.stretch.from_ms) for task in other.tasks] == [(20, 5), (5, 5)]


def test_times_said_by_how_long_ago_stay_where_they_were(root: Path) -> None:
    first = replaying(root, selection=ago(from_ms=5, until_ms=8))
    again = replaying(root, end=3, selection=ago(from_ms=6, until_ms=9))
    assert again.is_resumed
    assert (again.note, again.tasks) == (first.note, first.tasks)
    other = replaying(root, end=3, selection=ago(from_ms=6, until_ms=9, from_offset={0: 1}))
    assert not other.is_resumed
    # As times they are others, and once all is back the same words mean what is new since.
    finish(root, other.note)
    for selection in (Selection(from_ms=6, until_ms=9), ago(from_ms=7, until_ms=10)):
        assert not replaying(root, selection=selection).is_resumed


def ago(**given: Any) -> Selection:
    return Selection(words={"from_ms": "2h", "until_ms": "1h"}, **given)


def test_a_note_from_before_words_were_kept_is_known_again(root: Path) -> None:
    selection = Selection(from_ms=5)
    first = replaying(root, selection=selection)
    path = root / "_replays" / f"{first.note.replay}.json"
    content = json.loads(path.read_text())
    del content["words"]
    path.write_text(json.dumps(content))
    assert replaying(root, selection=selection).note == first.note


def test_a_damaged_note_is_named(root: Path) -> None:
    note = replaying(root).note
    (root / "_replays" / f"{note.replay}.json").write_text("{}")
    with pytest.raises(ArchiveRefused, match="it does not describe a replay"):
        replaying(root)


class Topics:
    def __init__(self, found: TopicFacts | None) -> None:
        self.found = found
        self.made: dict[str, Any] = {}

    def describe(self, name: str) -> Any:
        if self.found is None and not self.made:
            raise TopicNotFound(f"Topic {name} does not exist.")
        return self

    def settings(self, name: str) -> list[Any]:
        return []

    def create(self, name: str, **given: Any) -> bool:
        self.made = {"name": name, **given}
        return True

    @property
    def topic_id(self) -> str:
        return "id-9"

    @property
    def partitions(self) -> list[int]:
        return [0] * (self.made.get("partitions") or 2)


class FakeAdmin:
    def __init__(self, found: TopicFacts | None) -> None:
        self.topics = Topics(found)


def test_a_missing_target_is_made_like_the_topic_that_was_archived(root: Path) -> None:
    admin = FakeAdmin(None)
    description = dataclasses.replace(
        Archived(root).description, partitions=5, settings={"max.message.bytes": "9"}
    )
    found = target_topic(cast(Any, admin), "target", description)
    assert (found.partitions, found.topic_id) == (5, "id-9")
    assert admin.topics.made["settings"] == settings_of(description)
    assert settings_of(description) == {
        "max.message.bytes": "9",
        "message.timestamp.type": "CreateTime",
        "retention.ms": "-1",
    }
    there = FakeAdmin(TARGET)
    target_topic(cast(Any, there), "target", Archived(root).description)
    assert there.topics.made == {}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"partitions": 3}, "has 3 partitions, but the archived topic readings has 2"),
        ({"settings": {"message.timestamp.type": "LogAppendTime"}}, "their own would be lost"),
    ],
)
def test_a_target_that_would_change_the_records_is_refused(
    root: Path, changed: dict[str, Any], words: str
) -> None:
    description = Archived(root).description
    check_target(TARGET, description)
    with pytest.raises(ArchiveRefused, match=words):
        check_target(dataclasses.replace(TARGET, **changed), description)
