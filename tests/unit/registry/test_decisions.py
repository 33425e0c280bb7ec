"""Proves what the registry decides: ids, versions, deletes, modes, levels and references."""

from typing import Any

import pytest

from penstock.registry import answers, decisions, errors
from penstock.registry.decisions import Config
from penstock.registry.errors import RegistryError
from penstock.registry.schemas import Reference

from .rig import Rig, driven, record, request

INT, STRING = record(("a", "int")), record(("a", "string"))
WITH_B = record(("a", "int"), ("b", "int", 0))


def code_of(action: Any, *arguments: Any, **options: Any) -> int:
    with pytest.raises(RegistryError) as refused:
        action(*arguments, **options)
    return refused.value.code


def shape(rig: Rig) -> list[tuple[str, int, int, bool]]:
    """Every version: subject, number, id, and whether it is deleted."""
    for state in (rig.replayed(), rig.compacted()):
        assert state.subjects == rig.state.subjects
        assert state.next_id == rig.state.next_id
        assert state.text_length == rig.state.text_length
        assert (state.modes, state.configs) == (rig.state.modes, rig.state.configs)
    return [
        (each.subject, each.number, each.schema.id, each.is_deleted)
        for subject in sorted(rig.state.subjects)
        for each in rig.state.versions(subject, deleted=True)
    ]


def test_the_same_schema_has_one_id_and_one_version_in_a_subject() -> None:
    rig = Rig()
    assert rig.register("one", INT) == 1
    assert rig.register("one", INT) == 1
    assert rig.register("two", INT) == 1
    assert rig.register("one", WITH_B) == 2
    assert shape(rig) == [("one", 1, 1, False), ("one", 2, 2, False), ("two", 1, 1, False)]
    assert answers.subjects_of_id(rig.state, "1", deleted=False, subject=None) == ["one", "two"]


def test_an_incompatible_schema_is_refused_with_its_reason() -> None:
    rig = Rig()
    rig.register("one", INT)
    with pytest.raises(RegistryError) as refused:
        rig.register("one", STRING)
    assert (refused.value.code, refused.value.status) == (409, 409)
    assert "TYPE_MISMATCH" in refused.value.message
    assert "{oldSchemaVersion: 1}" in refused.value.message
    rig.do(decisions.set_config, "one", Config(compatibility="none"))
    assert rig.register("one", STRING) == 2


def test_transitive_levels_look_at_all_versions() -> None:
    rig = Rig()
    rig.register("one", INT)
    rig.register("one", WITH_B)
    without_default = record(("a", "int"), ("b", "int"))
    assert not rig.fits("one", without_default)
    rig.do(decisions.set_config, None, Config(compatibility="BACKWARD_TRANSITIVE"))
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in rig.fits("one", without_default)[0]


@pytest.mark.parametrize(
    ("level", "adding", "removing"),
    [
        ("BACKWARD", False, True),
        ("FORWARD", True, False),
        ("FULL", False, False),
        ("NONE", True, True),
    ],
)
def test_levels_say_who_must_read_whom(level: str, adding: bool, removing: bool) -> None:
    rig = Rig()
    rig.do(decisions.set_config, None, Config(compatibility=level))
    rig.register("one", record(("a", "int"), ("b", "int")))
    more = record(("a", "int"), ("b", "int"), ("c", "int"))
    assert (not rig.fits("one", more)) is adding
    assert (not rig.fits("one", INT)) is removing


def test_soft_and_hard_deletes() -> None:
    rig = Rig()
    rig.register("one", INT)
    rig.register("one", WITH_B)
    delete = decisions.delete_version
    assert code_of(rig.do, delete, "one", "1", permanent=True) == errors.VERSION_NOT_SOFT_DELETED
    assert rig.do(delete, "one", "1", permanent=False) == 1
    assert code_of(rig.do, delete, "one", "1", permanent=False) == errors.VERSION_SOFT_DELETED
    # It can still be looked up by its id, for the data that was written with it.
    assert driven(answers.schema_by_id(rig.state, "1"))["schema"]
    assert answers.numbers(rig.state, "one") == [2]
    assert answers.numbers(rig.state, "one", deleted=True) == [1, 2]
    assert code_of(answers.find_number, rig.state, "one", "1") == errors.VERSION_NOT_FOUND
    assert rig.do(delete, "one", "1", permanent=True) == 1
    assert code_of(answers.find_schema, rig.state, "1") == errors.SCHEMA_NOT_FOUND
    assert shape(rig) == [("one", 2, 2, False)]
    remove = decisions.delete_subject
    assert code_of(rig.do, remove, "one", permanent=True) == errors.SUBJECT_NOT_SOFT_DELETED
    assert rig.do(remove, "one", permanent=False) == [2]
    assert code_of(rig.do, remove, "one", permanent=False) == errors.SUBJECT_SOFT_DELETED
    assert code_of(answers.numbers, rig.state, "one") == errors.SUBJECT_NOT_FOUND
    # Registered again, it is a new version with its old id.
    assert rig.register("one", WITH_B) == 2
    assert shape(rig) == [("one", 2, 2, True), ("one", 3, 2, False)]


def test_an_id_is_never_given_twice_even_after_compaction() -> None:
    rig = Rig()
    rig.register("one", INT)
    rig.register("two", STRING)
    for permanent in (False, True):
        rig.do(decisions.delete_subject, "two", permanent=permanent)
    rig.state = rig.compacted()
    assert rig.register("two", WITH_B) == 3
    assert shape(rig) == [("one", 1, 1, False), ("two", 1, 3, False)]


def test_references_hold_what_they_refer_to() -> None:
    rig = Rig()
    rig.register("address", record(("street", "string"), name="Address"))
    user = record(("home", "Address"), name="User")
    reference = Reference("Address", "address", 1)
    assert code_of(rig.register, "user", user) == errors.INVALID_SCHEMA
    rig.register("user", user, references=[reference])
    assert answers.referenced_by(rig.state, "address", "1") == [2]
    delete = decisions.delete_version
    assert code_of(rig.do, delete, "address", "1", permanent=False) == errors.REFERENCE_EXISTS
    assert (
        code_of(rig.do, decisions.delete_subject, "address", permanent=False)
        == errors.REFERENCE_EXISTS
    )
    document = driven(answers.schema_by_id(rig.state, "2", form="resolved"))
    assert '"name":"Address"' in document["schema"]
    rig.do(delete, "user", "1", permanent=False)
    rig.do(delete, "user", "1", permanent=True)
    assert rig.do(delete, "address", "1", permanent=False) == 1


def test_references_that_lead_nowhere_or_in_a_circle_are_refused() -> None:
    rig = Rig()
    missing = Reference("X", "nobody", 1)
    assert code_of(rig.register, "one", INT, references=[missing]) == errors.INVALID_SCHEMA
    # No request makes a circle, but another registry may have written one.
    for subject, other in (("a", "b"), ("b", "a")):
        content = request("string")
        content.references = [Reference("Y", other, 1)]
        entry = decisions._version_entry(
            subject,
            1,
            decisions.Schema(
                7,
                b"",
                decisions.Content(schema="string", references=(Reference("Y", other, 1),)),
            ),
        )
        rig.state.apply(entry, rig.state.next_offset)
    with pytest.raises(RegistryError, match="refers to itself"):
        rig.register("one", INT, references=[Reference("Y", "a", 1)])


def test_modes() -> None:
    rig = Rig()
    rig.register("one", INT)
    set_mode = decisions.set_mode
    assert code_of(rig.do, set_mode, None, "SOMETIMES", force=False) == errors.INVALID_MODE
    rig.do(set_mode, "one", "READONLY", force=False)
    assert code_of(rig.register, "one", WITH_B) == errors.NOT_PERMITTED
    # What is there can be registered again.
    assert rig.register("one", INT) == 1
    assert code_of(rig.do, decisions.delete_subject, "one", permanent=False) == errors.NOT_PERMITTED
    assert code_of(rig.do, set_mode, None, "IMPORT", force=False) == errors.NOT_PERMITTED
    rig.do(set_mode, "two", "IMPORT", force=False)
    assert code_of(rig.register, "two", STRING) == errors.NOT_PERMITTED
    assert rig.register("two", STRING, id=77, version=5) == 77
    assert code_of(rig.register, "two", WITH_B, id=77) == errors.ID_TAKEN
    assert code_of(rig.register, "three", WITH_B, id=78) == errors.NOT_PERMITTED
    assert rig.do(decisions.delete_mode, "one") == {"mode": "READONLY"}
    assert rig.register("one", WITH_B) == 78
    assert shape(rig) == [("one", 1, 1, False), ("one", 2, 78, False), ("two", 5, 77, False)]


def test_settings_of_a_subject_go_with_it() -> None:
    rig = Rig()
    rig.register("one", INT)
    rig.do(decisions.set_config, "one", Config(compatibility="FULL"))
    assert answers.config(rig.state, "one", default_to_global=False) == {
        "compatibilityLevel": "FULL"
    }
    rig.do(decisions.delete_subject, "one", permanent=False)
    assert (
        code_of(answers.config, rig.state, "one", default_to_global=False)
        == errors.NO_SUBJECT_LEVEL
    )
    assert shape(rig) == [("one", 1, 1, True)]
    refused = code_of(rig.do, decisions.set_config, None, Config(compatibility="SOME"))
    assert refused == errors.INVALID_LEVEL
    assert code_of(rig.do, decisions.set_config, None, Config(alias="x")) == errors.NOT_SERVED


def test_normalized_schemas_are_the_same_however_they_are_written() -> None:
    rig = Rig()
    one = '{"type":"record","name":"x.R","fields":[{"name":"a","type":{"type":"int"}}],"p":1,"o":2}'
    two = '{"name":"R","namespace":"x","o":2,"p":1,"type":"record",' + one[one.index('"fields') :]
    two = two.replace('"p":1,"o":2}', '"z":0}').replace(',"z":0', "")
    assert rig.register("one", one, normalize=True) == rig.register("one", two, normalize=True)
    assert rig.register("one", two) == 2


@pytest.mark.parametrize("subject", [":.other:one", "", "x" * 1001, "a\nb"])
def test_subjects_that_are_not_names_are_refused(subject: str) -> None:
    assert code_of(Rig().register, subject, INT) == errors.INVALID_SUBJECT


@pytest.mark.parametrize("number", ["0", "-2", "abc", "2147483648", "1.5", ""])
def test_versions_that_are_not_numbers_are_refused(number: str) -> None:
    rig = Rig()
    rig.register("one", INT)
    assert code_of(answers.find_number, rig.state, "one", number) == errors.INVALID_VERSION


def test_what_others_wrote_is_read() -> None:
    """Records as Confluent's registry and Karapace write them."""
    rig = Rig()
    theirs = [
        (b'{"keytype":"NOOP","magic":0}', None),
        (b'{"keytype":"CONFIG","subject":null,"magic":0}', b'{"compatibilityLevel":"FULL"}'),
        (
            b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}',
            b'{"subject":"s","version":1,"id":4,"md5":"x","schema":"\\"int\\"","deleted":false}',
        ),
        (
            b'{"magic":0,"keytype":"DELETE_SUBJECT","subject":"s"}',
            b'{"subject":"s","version":1}',
        ),
        (b'{"keytype":"MODE","subject":"s","magic":0}', b'{"mode":"READONLY","subject":"s"}'),
        (b'{"keytype":"CLEAR_SUBJECT","subject":"s","magic":0}', b'{"subject":"s"}'),
    ]
    from penstock.registry.records import UnknownRecord, decode

    for offset, (key, value) in enumerate(theirs):
        rig.state.apply(decode(key, value), offset)
    assert rig.state.level("x") == "FULL"
    assert [each.is_deleted for each in rig.state.versions("s", deleted=True)] == [True]
    assert rig.state.mode("s") == "READONLY"
    assert rig.state.next_id == 5
    for key, value in ((b"hello", b"x"), (None, None), (theirs[2][0], b"[]"), (b"\xff", b"")):
        with pytest.raises(UnknownRecord):
            decode(key, value)


def test_a_full_registry_takes_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    rig.register("one", INT)
    monkeypatch.setattr(decisions, "TEXT_LENGTH_MAX", rig.state.text_length)
    assert code_of(rig.register, "one", WITH_B) == errors.STORE_FAILED
    assert rig.register("one", INT) == 1
    for permanent in (False, True):
        rig.do(decisions.delete_subject, "one", permanent=permanent)
    assert rig.state.text_length == 0
    assert rig.register("two", INT) == 2
