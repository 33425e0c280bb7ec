"""Proves that messages and the broker's words say the same, and that errors look as promised."""

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest
from google.protobuf import descriptor_pb2
from google.rpc import error_details_pb2
from grpc import StatusCode
from grpc_tools import protoc

from penstock.broker.doors import calls, lock_calls, queue_calls
from penstock.frontdoor.grpc import limits, messages, plain
from penstock.frontdoor.grpc.context import Budget
from penstock.frontdoor.grpc.services import SERVICES
from penstock.frontdoor.grpc.statuses import Failure, code_of
from penstock.frontdoor.grpc.translation import (
    fitting,
    idempotency_key,
    publish_reply,
    to_message,
    to_place,
    to_rows,
    to_struct,
)
from penstock.frontdoor.remote.reading import EARLIEST, LATEST
from penstock.frontdoor.remote.writing import Outcome
from penstock.model.errors import Reason, Refused
from penstock.records.record import Record

HERE = Path(messages.__file__).parent
NOW_MS = 1_000


# The interface


def test_the_compiled_description_is_that_of_the_proto(tmp_path: Path) -> None:
    """If not, run `make proto`."""
    made = tmp_path / "made.binpb"
    arguments = [f"-I{HERE}", f"--descriptor_set_out={made}", "penstock_v1.proto"]
    assert protoc.main(["protoc", *arguments]) == 0
    wanted = descriptor_pb2.FileDescriptorSet.FromString(made.read_bytes())
    shipped = (HERE / "penstock_v1.binpb").read_bytes()
    assert descriptor_pb2.FileDescriptorSet.FromString(shipped) == wanted
    stubs = (HERE / "messages.pyi").read_text()
    for name, message in messages.DESCRIPTOR.message_types_by_name.items():
        assert f"class {name}(" in stubs
        assert all(f"    {field.name}: " in stubs for field in message.fields)


def test_every_method_is_answered_and_no_other() -> None:
    declared = {
        name: {method.name for method in service.methods}
        for name, service in messages.DESCRIPTOR.services_by_name.items()
    }
    assert {name: set(methods) for name, methods in SERVICES.items()} == declared


@pytest.mark.parametrize("name", [*plain.ADMINISTRATION, *plain.GROUPS])
def test_a_request_has_the_fields_of_the_brokers_call(name: str) -> None:
    request = messages.DESCRIPTOR.message_types_by_name[f"{name}Request"]
    call = getattr(calls, name)
    assert {field.name for field in request.fields} == set(call.__struct_fields__)


@pytest.mark.parametrize(
    "name",
    [
        *("TopicSummary", "TopicList", "TopicDetails", "PartitionDetails", "SettingDetails"),
        *("SettingList", "GroupSummary", "GroupList", "GroupMember", "GroupDetails", "GroupOffset"),
        *("GroupOffsets", "NodeDetails", "ClusterDetails"),
    ],
)
def test_a_message_has_the_fields_of_the_brokers_answer(name: str) -> None:
    check_fields(name, getattr(calls, name))


@pytest.mark.parametrize(
    ("name", "struct"),
    [
        ("NodeStatus", calls.Status),
        ("QueuePartition", queue_calls.QueuePartition),
        ("QueueState", queue_calls.QueueState),
        ("RedriveReply", queue_calls.Redriven),
        ("LockInfo", lock_calls.LockInfo),
        ("FoundLock", lock_calls.FoundLock),
        ("LockList", lock_calls.LockList),
        ("RenewLockRequest", lock_calls.RenewLock),
        ("ReleaseLockRequest", lock_calls.ReleaseLock),
        ("DescribeLockRequest", lock_calls.DescribeLock),
        ("ListLocksRequest", lock_calls.ListLocks),
    ],
)
def test_so_do_those_of_queues_and_locks(name: str, struct: type[msgspec.Struct]) -> None:
    check_fields(name, struct)


def check_fields(name: str, struct: type[msgspec.Struct]) -> None:
    message = messages.DESCRIPTOR.message_types_by_name[name]
    assert [field.name for field in message.fields] == list(struct.__struct_fields__)


# By name


def test_what_a_client_leaves_out_keeps_the_brokers_default() -> None:
    call = to_struct(calls.CreateTopic, messages.CreateTopicRequest(name="t", settings={"a": "b"}))
    assert call == calls.CreateTopic(name="t", settings={"a": "b"})
    assert (call.partitions, call.replication_factor) == (-1, -1)


def test_lists_of_structs_are_translated() -> None:
    offset = messages.GroupOffset(topic="t", partition=1, offset=2, metadata="m")
    request = messages.CommitGroupOffsetsRequest(group_id="g", offsets=[offset])
    call = to_struct(calls.CommitGroupOffsets, request)
    wanted = calls.GroupOffset(topic="t", partition=1, offset=2, metadata="m")
    assert call == calls.CommitGroupOffsets(group_id="g", offsets=[wanted])


def test_an_answer_becomes_a_message() -> None:
    partition = calls.PartitionDetails(
        partition=0, leader=None, term=3, replicas=[1, 2], in_sync=[], end_offset=7
    )
    summary = calls.TopicSummary(
        name="t", topic_id=UUID(int=5), partitions=1, replication_factor=2, is_internal=False
    )
    answer = calls.TopicDetails(summary=summary, settings={"a": "b"}, partitions=[partition])
    message = to_message(messages.TopicDetails, answer)
    assert message.summary.topic_id == str(UUID(int=5))
    assert message.settings == {"a": "b"}
    (found,) = message.partitions
    assert not found.HasField("leader")
    assert not found.HasField("start_offset")
    assert (found.end_offset, list(found.replicas)) == (7, [1, 2])


# Records


def failure_of(work: Any, *arguments: Any) -> Failure:
    with pytest.raises(Failure) as caught:
        work(*arguments)
    return caught.value


def test_records_become_rows() -> None:
    header = messages.Header(name="h")
    records = [
        messages.NewRecord(key=b"", headers=[header], partition=3),
        messages.NewRecord(value=b"v", timestamp_ms=0),
    ]
    (first, partition), (second, none) = to_rows(records, NOW_MS)
    assert (first.key, first.value, list(first.headers)) == (b"", None, [("h", None)])
    assert (first.timestamp_ms, partition) == (NOW_MS, 3)
    assert (second.key, second.value, second.timestamp_ms, none) == (None, b"v", 0, None)


def test_records_that_can_not_be_written_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    good = messages.NewRecord(value=b"v")
    assert failure_of(to_rows, [], NOW_MS).field == "records"
    late = messages.NewRecord(timestamp_ms=2**60)
    assert failure_of(to_rows, [good, late], NOW_MS).field == "records[1].timestamp_ms"
    monkeypatch.setattr(limits, "RECORDS_PER_REQUEST_MAX", 1)
    assert "more than 1 records" in failure_of(to_rows, [good, good], NOW_MS).message
    assert failure_of(idempotency_key, "x" * 256).field == "idempotency_key"
    assert idempotency_key("") is None


def test_each_record_has_its_outcome() -> None:
    refused = Refused(Reason.MESSAGE_TOO_LARGE, "too large")
    reply = publish_reply([Outcome(1, [0, 2], [5, 6]), Outcome(0, [1], refused)], 3)
    assert (list(reply.partitions), list(reply.offsets)) == ([1, 0, 1], [5, -1, 6])
    (error,) = reply.errors
    assert (error.index, error.problem.reason) == (1, "MESSAGE_TOO_LARGE")
    assert error.problem.message == "Too large."
    for outcomes in ([Outcome(0, [0], refused)], [Outcome(0, [0], refused)] * 2):
        with pytest.raises(Refused):
            publish_reply(outcomes, len(outcomes))


def test_a_call_that_failed_says_so_if_records_may_have_been_written() -> None:
    sure, lost = Refused(Reason.THROTTLED, "later"), Refused(Reason.REQUEST_TIMED_OUT, "lost")
    with pytest.raises(Refused, match="lost"):
        publish_reply([Outcome(0, [0], sure), Outcome(1, [1], lost), Outcome(1, [2], sure)], 3)


def test_an_answer_has_at_least_one_record(monkeypatch: pytest.MonkeyPatch) -> None:
    records = [Record(value=b"x" * 100), Record(headers=(("h", b"x" * 100),)), Record()]
    assert fitting(records) == 3
    assert fitting([]) == 0
    monkeypatch.setattr(limits, "REPLY_BYTES_MAX", 600)
    assert fitting(records) == 2
    monkeypatch.setattr(limits, "REPLY_BYTES_MAX", 10)
    assert fitting(records) == 1


def test_places() -> None:
    assert to_place(messages.Start(), LATEST) == (False, LATEST)
    assert to_place(messages.Start(offset=0), LATEST) == (True, 0)
    assert to_place(messages.Start(timestamp_ms=7), LATEST) == (False, 7)
    assert to_place(messages.Start(edge=messages.EDGE_EARLIEST), LATEST) == (False, EARLIEST)
    assert failure_of(to_place, messages.Start(offset=-1), 0).field == "start.offset"
    assert failure_of(to_place, messages.Start(timestamp_ms=-1), 0).field == "start.timestamp_ms"
    unspecified = messages.Start(edge=messages.EDGE_UNSPECIFIED)
    assert failure_of(to_place, unspecified, 0).field == "start.edge"


# Statuses


def test_every_reason_has_a_code_that_is_an_error() -> None:
    assert {code_of(reason) for reason in Reason} <= set(StatusCode) - {StatusCode.OK}
    assert code_of(Reason.UNKNOWN_SERVER_ERROR) is StatusCode.INTERNAL
    assert code_of(Reason.NOT_LEADER_OR_FOLLOWER) is StatusCode.UNAVAILABLE


def test_a_passing_failure_says_when_to_come_back() -> None:
    status = Failure.of(Refused(Reason.LEADER_NOT_AVAILABLE, "nobody leads")).status
    info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
    assert status.details[0].Unpack(info)
    assert status.details[1].Unpack(retry)
    assert (status.code, status.message) == (14, "Nobody leads.")
    assert (info.reason, info.domain) == ("LEADER_NOT_AVAILABLE", "penstock")
    assert retry.retry_delay.seconds == 1


# Budget


async def test_those_who_wait_for_room_get_it_in_order() -> None:
    budget = Budget(10)
    assert budget.try_take(8)
    first = asyncio.ensure_future(budget.take(6))
    second = asyncio.ensure_future(budget.take(1))
    await asyncio.sleep(0)
    # It would fit, but others wait.
    assert not budget.try_take(1)
    budget.give(8)
    await asyncio.gather(first, second)
    third = asyncio.ensure_future(budget.take(5))
    fourth = asyncio.ensure_future(budget.take(3))
    await asyncio.sleep(0)
    assert not fourth.done()
    third.cancel()
    await asyncio.wait([third])
    # Whoever gives up lets the next one in.
    await fourth
    budget.give(10)
    assert budget.try_take(10)


def test_structs_and_messages_agree_on_defaults() -> None:
    """A message without anything in it is the struct with nothing given but what it must have."""
    assert to_struct(calls.ListTopics, messages.ListTopicsRequest()) == calls.ListTopics()
    assert isinstance(calls.Done(), msgspec.Struct)
    assert to_message(messages.Done, calls.Done()) == messages.Done()
