"""Proves which records a topic that validates schemas takes, and that batches keep their order."""

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from penstock.broker import schema_gate, schema_settings
from penstock.broker.forwarding import ReadAnswer
from penstock.broker.known_schemas import CATCH_UP_S_MAX, FAILED_S, FRESH_S, KnownSchemas
from penstock.broker.produce import ACKS_ALL, ACKS_LEADER, ACKS_NONE, Part, Produce, Production
from penstock.broker.schema_checks import Named, fault_of, find_schemas
from penstock.broker.schema_gate import SchemaGate
from penstock.broker.schema_judge import SchemaJudge
from penstock.model.errors import Reason, Refused
from penstock.model.ids import COPIERS_FROM, NO_TOPIC_ID, TopicId
from penstock.model.topic_config import SchemaValidation, SubjectNames, TopicConfig
from penstock.records.batch import build_batch
from penstock.records.compression import Codec
from penstock.records.errors import CorruptBatch
from penstock.records.record import Record
from penstock.registry.records import (
    DeleteSubjectKey,
    DeleteSubjectValue,
    Entry,
    SchemaKey,
    SchemaValue,
    encode,
)
from penstock.registry.state import State
from penstock.replication.admission import RECORD_ERRORS_MAX, RecordsRefused
from tests.unit.broker.partition_rig import Node, running
from tests.unit.clocks import ManualClock
from tests.unit.replication.rig import START_MS, TOPIC, read_values

VALUES = SchemaValidation(value=SubjectNames.TOPIC)
BOTH = SchemaValidation(SubjectNames.TOPIC, SubjectNames.TOPIC)
SCHEMAS_ID = TopicId(UUID(int=77))


def registered(subject: str, schema_id: int, name: str = "Order", version: int = 1) -> Entry:
    schema = json.dumps({"type": "record", "name": name, "fields": []})
    value = SchemaValue(subject=subject, version=version, id=schema_id, schema=schema)
    return Entry(SchemaKey(subject, version), value)


def deleted(subject: str) -> Entry:
    return Entry(DeleteSubjectKey(subject), DeleteSubjectValue(subject=subject, version=1))


def state_of(*entries: Entry) -> State:
    state = State()
    for entry in entries:
        state.apply(entry, state.next_offset)
    return state


def framed(schema_id: int, rest: bytes = b"x") -> bytes:
    return b"\x00" + schema_id.to_bytes(4) + rest


def batch_of(*values: bytes | None, **rest: Any) -> bytes:
    records = [Record(offset=number, value=value) for number, value in enumerate(values)]
    return build_batch(records, **rest)


# What records name


@pytest.mark.parametrize("codec", list(Codec))
def test_the_schemas_of_all_records_are_found(codec: Codec) -> None:
    batch = batch_of(framed(7), b"raw", framed(7), None, b"", framed(8), codec=codec)
    found = find_schemas(batch, VALUES)
    assert found == {
        Named(False, b"\x00\x00\x00\x00\x07"): [0, 2],
        Named(False, b""): [1, 4],
        Named(False, b"\x00\x00\x00\x00\x08"): [5],
    }
    # Of several batches, the places count on.
    assert find_schemas(batch + batch, VALUES)[Named(False, b"")] == [1, 4, 7, 10]


def test_keys_are_looked_at_where_that_is_asked_for() -> None:
    batch = build_batch([Record(key=framed(1), value=b"raw"), Record(offset=1, value=framed(2))])
    keys = SchemaValidation(key=SubjectNames.TOPIC)
    assert list(find_schemas(batch, keys)) == [Named(True, framed(1)[:5])]
    assert len(find_schemas(batch, BOTH)) == 3


def test_a_header_counts_before_the_bytes() -> None:
    guid = b"\x01" + bytes(range(16))
    rows = [
        (b"raw", guid),
        (framed(1), guid),
        # A header that is not a schema's is not mended by the bytes behind it.
        (framed(1), b"\x01short"),
        (framed(1), b"\x02"),
        (framed(1), None),
        (guid + b"data", None),
    ]
    records = [
        Record(offset=number, value=value, headers=(("__value_schema_id", header),))
        for number, (value, header) in enumerate(rows)
    ]
    assert find_schemas(build_batch(records), VALUES) == {
        Named(False, guid): [0, 1, 5],
        Named(False, b""): [2, 3],
        Named(False, framed(1)[:5]): [4],
    }


def test_no_more_records_are_named_than_an_answer_lists() -> None:
    batch = batch_of(*[b"raw"] * (RECORD_ERRORS_MAX + 50))
    assert find_schemas(batch, VALUES) == {Named(False, b""): list(range(RECORD_ERRORS_MAX))}


def test_damaged_bytes_are_not_judged() -> None:
    batch = bytearray(batch_of(framed(1)))
    batch[-1] ^= 1
    with pytest.raises(CorruptBatch):
        find_schemas(bytes(batch), VALUES)


# What a topic takes


def fault(schema_id: int, names: SubjectNames, *entries: Entry) -> str | None:
    named = Named(False, framed(schema_id)[:5])
    return fault_of(named, "orders", SchemaValidation(value=names), state_of(*entries))


def test_a_schema_must_be_registered_under_the_topics_subject() -> None:
    own, other = registered("orders-value", 1), registered("others-value", 2, "Other")
    assert fault(1, SubjectNames.TOPIC, own, other) is None
    assert fault(2, SubjectNames.TOPIC, own, other) == (
        "the schema with the id 2 is not registered under orders-value"
    )
    assert fault(3, SubjectNames.TOPIC, own) == "the registry has no schema with the id 3"
    # One schema may have several subjects.
    assert fault(2, SubjectNames.TOPIC, other, registered("orders-value", 2, "Other")) is None


def test_a_deleted_version_is_not_taken() -> None:
    entries = registered("orders-value", 1), deleted("orders-value")
    assert fault(1, SubjectNames.TOPIC, *entries) is not None


def test_subjects_may_have_the_records_name() -> None:
    by_record, by_both = registered("Order", 1), registered("orders-Order", 1)
    assert fault(1, SubjectNames.RECORD, by_record) is None
    assert fault(1, SubjectNames.RECORD, by_both) is not None
    assert fault(1, SubjectNames.TOPIC_RECORD, by_both) is None
    assert fault(1, SubjectNames.TOPIC_RECORD, by_record) is not None
    plain = Entry(
        SchemaKey("any", 1), SchemaValue(subject="any", version=1, id=1, schema='"string"')
    )
    assert "has no record name" in str(fault(1, SubjectNames.RECORD, plain))


def test_a_guid_stands_for_its_schema() -> None:
    state = state_of(registered("orders-value", 1))
    schema = state.find_id(1)
    assert schema is not None
    named = Named(False, b"\x01" + schema.digest)
    assert fault_of(named, "orders", VALUES, state) is None
    unknown = Named(False, b"\x01" + bytes(16))
    assert str(UUID(int=0)) in str(fault_of(unknown, "orders", VALUES, state))


# Batches in line


class MadeUpSchemas:
    """A registry whose news a test lets out; None in `coming` means that it can't be read."""

    def __init__(self) -> None:
        self.state = state_of(registered(f"{TOPIC}-value", 1))
        self.version = 0
        self.news = asyncio.Event()
        self.news.set()
        self.coming: list[Entry] | None = []
        self.read = 0

    def read_on(self) -> None: ...

    async def catch_up(self) -> None:
        self.read += 1
        await self.news.wait()
        if self.coming is None:
            raise Refused(Reason.NOT_ENOUGH_REPLICAS, "can't be read now")
        for entry in self.coming:
            self.state.apply(entry, self.state.next_offset)
            self.version += 1


class Rig:
    def __init__(self, node: Node) -> None:
        self.node = node
        self.known = MadeUpSchemas()
        self.produce = Produce(partitions=node.partitions, clock=node.clock)
        self.produce.gate = SchemaGate(
            make_judge=lambda: SchemaJudge(self.known),  # type: ignore[arg-type]
            executor=node.background,
        )

    def send(self, *batches: bytes, acks: int = ACKS_ALL, **rest: Any) -> Any:
        production = self.produce.start(acks, START_MS / 1000 + 30)
        for batch in batches:
            production.append(TOPIC, NO_TOPIC_ID, 0, batch, **rest)
        return production.finish()


async def rig_on(node: Node, validation: SchemaValidation | None = VALUES) -> Rig:
    await node.replica(TopicConfig(schema_validation=validation))
    return Rig(node)


async def errors_of(production: Any) -> list[Refused | None]:
    parts: list[Part] = await production if isinstance(production, Production) else production
    return [part.error for part in parts]


async def reasons_of(production: Any) -> list[Reason | None]:
    return [error and error.reason for error in await errors_of(production)]


def values_in(rig: Rig) -> list[bytes]:
    return read_values(rig.node.partitions.get(TOPIC, 0))


async def test_a_batch_is_taken_whole_or_refused_with_its_bad_records(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        rig = await rig_on(node)
        assert await reasons_of(rig.send(batch_of(framed(1), None, framed(1)))) == [None]
        (error,) = await errors_of(rig.send(batch_of(framed(1), framed(5), framed(6))))
        assert isinstance(error, RecordsRefused)
        assert error.reason is Reason.INVALID_RECORD
        assert [index for index, _ in error.record_errors] == [1, 2]
        assert "record 1: the registry has no schema with the id 5" in error.detail
        assert rig.known.read == 1
        # What names no schema is not looked for.
        (error,) = await errors_of(rig.send(batch_of(framed(9), b"raw")))
        assert isinstance(error, RecordsRefused)
        assert [index for index, _ in error.record_errors] == [1]
        assert rig.known.read == 1
        assert len(values_in(rig)) == 3


async def test_a_schema_that_is_new_is_looked_for_once(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        rig = await rig_on(node)
        rig.known.coming = [registered(f"{TOPIC}-value", 2, "New", 2)]
        assert await reasons_of(rig.send(batch_of(framed(2)))) == [None]
        read = rig.known.read
        assert await reasons_of(rig.send(batch_of(framed(2)))) == [None]
        assert rig.known.read == read


async def test_no_batch_overtakes_one_that_waits(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        rig = await rig_on(node)
        # The first one of all waits for the judge; from then on small ones pass at once.
        await errors_of(rig.send(batch_of(framed(1, b"0"))))
        rig.known.news.clear()
        rig.known.coming = [registered(f"{TOPIC}-value", 2, "New", 2)]
        new = {"producer_id": 5, "producer_epoch": 0}
        first = rig.send(batch_of(framed(2, b"1"), base_sequence=0, **new))
        second = rig.send(batch_of(framed(1, b"2"), base_sequence=1, **new))
        large = rig.send(batch_of(framed(1, b"3" * 50_000), base_sequence=2, **new))
        assert isinstance(first, Production)
        assert isinstance(second, Production)
        rig.known.news.set()
        for each in (first, second, large):
            assert await reasons_of(each) == [None]
        assert [value[5:6] for value in values_in(rig)] == [b"0", b"1", b"2", b"3"]


async def test_what_follows_a_batch_that_nobody_can_judge_now_shares_its_fate(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as node:
        rig = await rig_on(node)
        rig.known.coming = None
        new = {"producer_id": 5, "producer_epoch": 0}
        first = rig.send(batch_of(framed(2), base_sequence=0, **new))
        second = rig.send(batch_of(framed(1), base_sequence=1, **new))
        assert await reasons_of(first) == [Reason.NOT_ENOUGH_REPLICAS]
        assert await reasons_of(second) == [Reason.NOT_ENOUGH_REPLICAS]
        rig.known.coming = [registered(f"{TOPIC}-value", 2, "New", 2)]
        assert await reasons_of(rig.send(batch_of(framed(2), base_sequence=0, **new))) == [None]
        assert await reasons_of(rig.send(batch_of(framed(1), base_sequence=1, **new))) == [None]


async def test_a_wait_that_is_too_long_is_told(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        rig = await rig_on(node)
        rig.known.news.clear()
        production = rig.send(batch_of(framed(2)))
        assert isinstance(production, Production)
        production.expire()
        assert await reasons_of(production) == [Reason.REQUEST_TIMED_OUT]
        rig.known.news.set()


async def test_who_wants_no_answer_is_written_although_it_left(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        rig = await rig_on(node)
        rig.known.news.clear()
        rig.known.coming = [registered(f"{TOPIC}-value", 2, "New", 2)]
        production = rig.send(batch_of(framed(2)), acks=ACKS_NONE)
        production.cancel()
        rig.known.news.set()
        last = rig.send(batch_of(framed(2)), acks=ACKS_LEADER)
        assert await reasons_of(last) == [None]
        assert len(values_in(rig)) == 2


async def test_no_more_bytes_wait_than_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as node:
        rig = await rig_on(node)
        rig.known.news.clear()
        one = batch_of(framed(1))
        monkeypatch.setattr(schema_gate, "WAITING_BYTES_MAX", 2 * len(one))
        waiting = [rig.send(batch_of(framed(2))), rig.send(one)]
        assert await reasons_of(rig.send(one)) == [Reason.THROTTLED]
        rig.known.news.set()
        assert [await reasons_of(each) for each in waiting] == [[Reason.INVALID_RECORD], [None]]
        assert await reasons_of(rig.send(one)) == [None]


async def test_a_failing_judge_does_not_stop_the_line(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        rig = await rig_on(node)
        good, rig.known.state = rig.known.state, None  # type: ignore[assignment]
        assert await reasons_of(rig.send(batch_of(framed(1)))) == [Reason.UNKNOWN_SERVER_ERROR]
        rig.known.state = good
        assert await reasons_of(rig.send(batch_of(framed(1)))) == [None]


async def test_copies_and_topics_without_the_setting_are_not_looked_into(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        rig = await rig_on(node)
        copy = batch_of(b"raw", producer_id=COPIERS_FROM + 1, producer_epoch=0, base_sequence=0)
        assert await reasons_of(rig.send(copy, is_copy=True)) == [None]
        node.partitions.get(TOPIC, 0).set_config(TopicConfig())
        assert await reasons_of(rig.send(batch_of(b"raw"))) == [None]


async def test_damaged_bytes_may_be_sent_again(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        rig = await rig_on(node)
        damaged = bytearray(batch_of(framed(1)))
        damaged[-1] ^= 1
        for _ in range(2):
            assert await reasons_of(rig.send(bytes(damaged))) == [Reason.CORRUPT_MESSAGE]
        assert await reasons_of(rig.send(b"")) == [Reason.INVALID_RECORD]


# The broker's copy of the registry


class MadeUpTopic:
    """What the broker reads of `_schemas`."""

    def __init__(self) -> None:
        self.topic_id: TopicId | None = SCHEMAS_ID
        self.start = 0
        self.batches: list[bytes] = []
        self.end = 0
        self.reads = 0
        self.refused: Refused | None = None

    def add(self, *entries: Entry) -> None:
        records = [
            Record(offset=number, key=key, value=value)
            for number, (key, value) in enumerate(map(encode, entries))
        ]
        self._add(build_batch(records, base_offset=self.end), len(entries))

    def add_foreign(self) -> None:
        record = Record(key=b"not a key of ours", value=b"?")
        self._add(build_batch([record], base_offset=self.end), 1)

    def _add(self, batch: bytes, count: int) -> None:
        self.batches.append(batch)
        self.end += count

    def find(self, topic: Any, *_: Any) -> Any:
        if isinstance(topic, str):
            return None if self.topic_id is None else SimpleNamespace(topic_id=self.topic_id)
        return self._earliest()

    async def _earliest(self) -> Any:
        return SimpleNamespace(offset=self.start)

    async def read(self, topic_id: TopicId, _: int, offset: int, **__: Any) -> ReadAnswer:
        self.reads += 1
        await asyncio.sleep(0)
        if self.refused is not None:
            raise self.refused
        if offset < self.start:
            raise Refused(Reason.OFFSET_OUT_OF_RANGE)
        return ReadAnswer(b"".join(self.batches[-1:] if offset else self.batches), 0, self.end)


def known_in(topic: MadeUpTopic, clock: ManualClock) -> KnownSchemas:
    return KnownSchemas(topics=topic, forwarding=topic, clock=clock)  # type: ignore[arg-type]


async def test_the_copy_follows_the_registry() -> None:
    topic, clock = MadeUpTopic(), ManualClock()
    known = known_in(topic, clock)
    topic.add(registered("a", 1), registered("b", 2, "B"))
    topic.add_foreign()
    await asyncio.gather(*(known.catch_up() for _ in range(10)))
    assert topic.reads <= 2, "those who ask at once share a read"
    assert known.state.find_id(2) is not None
    assert known.state.next_offset == 3
    before = known.version
    topic.add(registered("c", 3, "C"))
    await known.catch_up()
    assert known.state.find_id(3) is not None
    assert known.version > before
    # A topic that was deleted took all along.
    topic.topic_id = None
    await known.catch_up()
    assert known.state.find_id(3) is None


async def test_a_topic_that_was_cut_is_read_again() -> None:
    topic, clock = MadeUpTopic(), ManualClock()
    known = known_in(topic, clock)
    topic.add(registered("a", 1))
    await known.catch_up()
    topic.batches, topic.start, topic.end = [], 5, 5
    topic.add(registered("b", 2, "B"))
    await known.catch_up()
    assert known.state.find_id(1) is None
    assert known.state.find_id(2) is not None


async def test_a_registry_that_can_not_be_read_is_not_asked_by_everybody() -> None:
    topic, clock = MadeUpTopic(), ManualClock()
    known = known_in(topic, clock)
    topic.refused = Refused(Reason.LEADER_NOT_AVAILABLE, "it has no leader")
    for _ in range(3):
        with pytest.raises(Refused, match=r"_schemas can't be read now.*it has no leader") as told:
            await known.catch_up()
        assert told.value.reason is Reason.NOT_ENOUGH_REPLICAS
    assert topic.reads == 1
    clock.ms += int(FAILED_S * 1000)
    topic.refused = None
    await known.catch_up()
    assert CATCH_UP_S_MAX > FAILED_S


async def test_a_copy_that_is_used_reads_on() -> None:
    topic, clock = MadeUpTopic(), ManualClock()
    known = known_in(topic, clock)
    await known.catch_up()
    reads = topic.reads
    known.read_on()
    await asyncio.sleep(0)
    assert topic.reads == reads
    clock.ms += int(FRESH_S * 1000)
    topic.add(registered("a", 1))
    known.read_on()
    known.read_on()
    while known.state.find_id(1) is None:
        await asyncio.sleep(0)
    assert topic.reads == reads + 1


# The setting


def test_the_setting_needs_the_registrys_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_settings, "missing_libraries", lambda: ["fastavro"])
    on, off = {"confluent.key.schema.validation": " TRUE "}, {"retention.ms": "1"}
    refused = schema_settings.fault_of_validation(on)
    assert refused is not None
    assert refused.reason is Reason.INVALID_CONFIG
    assert "penstock-mq[registry]" in refused.detail
    assert "fastavro" in refused.detail
    assert schema_settings.fault_of_validation(off) is None
    off_again: dict[str, str | None] = {"confluent.key.schema.validation": "false"}
    assert schema_settings.fault_of_validation(off_again) is None
    monkeypatch.setattr(schema_settings, "missing_libraries", list)
    assert schema_settings.fault_of_validation(on) is None
