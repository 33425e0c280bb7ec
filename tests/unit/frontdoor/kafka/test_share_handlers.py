"""What the handlers of share consumers ask of queues, and what they make of the answers."""

import asyncio
from collections.abc import Collection, Generator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from penstock.broker.later import Later
from penstock.broker.queues import (
    AckBatch,
    AcquiredPartition,
    AcquiredRange,
    AcquireQuery,
    Queues,
)
from penstock.frontdoor.kafka import shares
from penstock.frontdoor.kafka.api import Api, Call
from penstock.frontdoor.kafka.errors import error_code
from penstock.frontdoor.kafka.handlers import share_acknowledge, share_fetch
from penstock.frontdoor.kafka.shares import Shares
from penstock.model.errors import Reason, Refused
from penstock.model.file_ranges import FileRange
from penstock.model.ids import GroupId, MemberId, TopicId
from penstock.model.limits import Limits
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.codec import decode
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from penstock.protocol.kafka.messages.share_fetch import (
    RECORD_LIMIT,
    AcknowledgementBatch,
    ShareFetchPartition,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareFetchTopic,
    ShareForgottenTopic,
)
from tests.unit.frontdoor.kafka.kit import open_house, request_frame
from tests.waiting import until

TOPIC, NOBODY = TopicId(UUID(int=5)), UUID(int=6)
PARTITIONS = 3
GROUP, MEMBER = GroupId("g"), MemberId("m")
LOCK_MS = 12_345
ACCEPT, RELEASE, RENEW = 1, 2, 4
NONE = ErrorCode.NONE

Place = tuple[TopicId, int]
# By topic and partition: first and last offset, and types.
Acks = dict[Any, dict[int, list[tuple[int, int, list[int]]]]]


class FakeDecisions:
    def __init__(
        self,
        outcomes: dict[Place, Refused | None],
        may_decide: asyncio.Event,
        may_store: asyncio.Event,
    ) -> None:
        self._outcomes = outcomes
        self._may_decide = may_decide
        self._may_store = may_store

    async def decided(self) -> None:
        await self._may_decide.wait()

    def __await__(self) -> Generator[Any, None, dict[Place, Refused | None]]:
        yield from self._may_decide.wait().__await__()
        yield from self._may_store.wait().__await__()
        return self._outcomes


class FakeQueues:
    """Answers what a test says, and remembers what it was asked."""

    def __init__(self) -> None:
        self.queries: list[AcquireQuery] = []
        self.acks: list[dict[Place, list[AckBatch]]] = []
        self.released: list[list[Place] | None] = []
        self.records: dict[int, AcquiredPartition] = {}
        self.outcomes: dict[Place, Refused | None] = {}
        # Polls wait for it while there is one.
        self.waiting: list[Later[list[AcquiredPartition]]] = []
        self.waits = False
        self.may_release = asyncio.Event()
        self.may_release.set()
        # Whether acks are decided, and stored.
        self.may_decide = asyncio.Event()
        self.may_decide.set()
        self.may_store = asyncio.Event()
        self.may_store.set()

    async def acquired(self, query: AcquireQuery) -> list[AcquiredPartition]:
        self.queries.append(query)
        if self.waits:
            self.waiting.append(Later())
            return await self.waiting[-1]
        return [self._found(each) for each in query.wanted]

    def _found(self, wanted: Any) -> AcquiredPartition:
        found = self.records.get(wanted.partition, AcquiredPartition(wanted=wanted))
        found.wanted = wanted
        return found

    def acknowledge(
        self, group_id: GroupId, member_id: MemberId, acks: Mapping[Place, Sequence[AckBatch]]
    ) -> "FakeDecisions":
        assert (group_id, member_id) == (GROUP, MEMBER)
        self.acks.append({place: list(batches) for place, batches in acks.items()})
        outcomes = {place: self.outcomes.get(place) for place in acks}
        return FakeDecisions(outcomes, self.may_decide, self.may_store)

    async def release(
        self, group_id: GroupId, member_id: MemberId, keys: Collection[Place] | None = None
    ) -> None:
        assert (group_id, member_id) == (GROUP, MEMBER)
        self.released.append(None if keys is None else list(keys))
        await self.may_release.wait()

    def lock_duration_ms(self, group_id: GroupId) -> int:
        return LOCK_MS


class FakeTopics:
    def find_by_id(self, topic_id: UUID) -> Any:
        return SimpleNamespace(partitions=PARTITIONS) if topic_id == TOPIC else None


class FakeLeaderships:
    """Partition 2 is led elsewhere."""

    def hint(self, topic: str, topic_id: TopicId, partition: int) -> Any:
        return SimpleNamespace(node=7, term=9) if partition == 2 else None

    def broker(self, node: int) -> Any:
        endpoint = SimpleNamespace(host="there", port=9092)
        return SimpleNamespace(id=node, kafka=endpoint, rack="r")


class Door:
    def __init__(self, sessions_max: int = 10) -> None:
        self.queues = FakeQueues()
        self.shares = Shares(cast("Queues", self.queues), sessions_max=sessions_max)

    def call(self, api: Api, version: int, connection_id: int = 1) -> Call:
        services = SimpleNamespace(
            queues=self.queues,
            topics=FakeTopics(),
            leaderships=FakeLeaderships(),
            limits=Limits(),
        )
        peer = SimpleNamespace(id=connection_id, shares=self.shares)
        return Call(cast("Any", services), api.key, version, "tester", cast("Any", peer), 0.0)

    async def fetch(self, *, version: int = 2, **fields: Any) -> ShareFetchResponse:
        request = fetch_request(**fields)
        call = self.call(share_fetch.API, version)
        answer = await share_fetch.handle(call, request)
        body = share_fetch.encode_answer(call, request, answer)
        assert isinstance(body, list)
        data = b"".join(p.read() if isinstance(p, FileRange) else p for p in body)
        return decode(ShareFetchResponse, version, data)

    async def acknowledge(self, acks: Acks, *, version: int = 2, **fields: Any) -> Any:
        request = ShareAcknowledgeRequest(
            **{"group_id": GROUP, "member_id": MEMBER, "share_session_epoch": 1, **fields}
        )
        request.topics = [
            AcknowledgeTopic(
                topic_id=topic_id,
                partitions=[
                    AcknowledgePartition(partition_index=index, acknowledgement_batches=said(acks))
                    for index, acks in partitions.items()
                ],
            )
            for topic_id, partitions in acks.items()
        ]
        return await share_acknowledge.handle(self.call(share_acknowledge.API, version), request)


def said(batches: list[tuple[int, int, list[int]]]) -> list[AcknowledgementBatch]:
    return [
        AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
        for first, last, types in batches
    ]


def fetch_request(
    epoch: int = 0,
    partitions: Sequence[int] = (),
    acks: Acks | None = None,
    forgotten: Sequence[int] = (),
    topic_id: UUID = TOPIC,
    **fields: Any,
) -> ShareFetchRequest:
    limits = {"max_wait_ms": 5, "min_bytes": 1, "max_records": 10, "batch_size": 10}
    named: Acks = {topic_id: {index: [] for index in partitions}}
    for each, of_topic in (acks or {}).items():
        named.setdefault(each, {}).update(of_topic)
    values = {"group_id": GROUP, "member_id": MEMBER, **limits, **fields}
    return ShareFetchRequest(
        share_session_epoch=epoch,
        topics=[
            ShareFetchTopic(
                topic_id=each,
                partitions=[
                    ShareFetchPartition(partition_index=index, acknowledgement_batches=said(acks))
                    for index, acks in of_topic.items()
                ],
            )
            for each, of_topic in named.items()
        ],
        forgotten_topics_data=[ShareForgottenTopic(topic_id=TOPIC, partitions=list(forgotten))],
        **values,
    )


def codes(response: Any) -> dict[tuple[int, int], tuple[ErrorCode, ...]]:
    """By topic and partition: the error, and that of acknowledgements where there may be one."""
    return {
        (topic.topic_id.int, part.partition_index): (
            ErrorCode(part.error_code),
            *(
                [ErrorCode(part.acknowledge_error_code)]
                if hasattr(part, "acknowledge_error_code")
                else []
            ),
        )
        for topic in response.responses
        for part in topic.partitions
    }


async def refused(coroutine: Any) -> ErrorCode:
    with pytest.raises(Refused) as caught:
        await coroutine
    return error_code(caught.value)


# Sessions


async def test_a_session_remembers_the_partitions() -> None:
    door = Door()
    await door.fetch(epoch=0, partitions=[0, 1])
    await door.fetch(epoch=1, partitions=[2])
    await door.fetch(epoch=2, forgotten=[0])
    wanted = [[each.partition for each in query.wanted] for query in door.queues.queries]
    assert [sorted(each) for each in wanted] == [[0, 1], [0, 1, 2], [1, 2]]
    assert wanted[1][0] != wanted[0][0]


async def test_a_request_out_of_step_is_refused_and_asks_nothing() -> None:
    door = Door()
    assert await refused(door.fetch(epoch=1)) is ErrorCode.SHARE_SESSION_NOT_FOUND
    assert await refused(door.fetch(epoch=-1)) is ErrorCode.SHARE_SESSION_NOT_FOUND
    await door.fetch(epoch=0, partitions=[0])
    assert await refused(door.fetch(epoch=2)) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert await refused(door.acknowledge({}, share_session_epoch=0)) is (
        ErrorCode.INVALID_SHARE_SESSION_EPOCH
    )
    assert len(door.queues.queries) == 1


async def test_an_acknowledgement_takes_the_next_epoch_too() -> None:
    door = Door()
    await door.fetch(epoch=0, partitions=[0])
    await door.acknowledge({TOPIC: {0: [(0, 1, [ACCEPT])]}}, share_session_epoch=1)
    await door.fetch(epoch=2)


async def test_a_new_session_ends_leases_from_before_unless_it_follows_another() -> None:
    door = Door()
    await door.fetch(epoch=0, partitions=[0, 1])
    assert door.queues.released == [[(TOPIC, 0), (TOPIC, 1)]]
    await door.fetch(epoch=0, partitions=[1])
    assert len(door.queues.released) == 1


async def test_the_last_request_of_a_session_acknowledges_and_releases() -> None:
    door = Door()
    await door.fetch(epoch=0, partitions=[0])
    door.queues.released.clear()
    answer = await door.fetch(epoch=-1, acks={TOPIC: {0: [(3, 4, [ACCEPT])]}})
    assert codes(answer) == {(5, 0): (NONE, NONE)}
    assert door.queues.acks == [{(TOPIC, 0): [AckBatch(first=3, last=4, types=(ACCEPT,))]}]
    assert door.queues.released == [None]
    assert len(door.queues.queries) == 1
    assert await refused(door.fetch(epoch=1)) is ErrorCode.SHARE_SESSION_NOT_FOUND


async def test_leases_that_can_not_be_given_back_hold_up_a_request_for_a_while_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shares, "RELEASE_SECONDS_MAX", 0.01)
    monkeypatch.setattr(shares, "DRAIN_SECONDS_MAX", 0.01)
    door = Door()
    door.queues.may_release.clear()
    await door.fetch(epoch=0, partitions=[0])
    await door.fetch(epoch=-1)
    assert door.queues.released == [[(TOPIC, 0)], None]
    await door.shares.close()
    door.queues.may_release.set()
    await door.shares.close()


async def test_a_session_ends_with_an_acknowledgement_too() -> None:
    door = Door()
    await door.fetch(epoch=0, partitions=[0])
    door.queues.released.clear()
    await door.acknowledge({}, share_session_epoch=-1)
    assert door.queues.released == [None]
    assert len(door.shares.sessions) == 0


@pytest.mark.parametrize("is_decided", [False, True])
@pytest.mark.parametrize("is_fetch", [False, True])
async def test_leases_go_back_if_the_client_leaves_before_its_last_acks_are_stored(
    is_fetch: bool, is_decided: bool
) -> None:
    door = Door()
    await door.fetch(epoch=0, partitions=[0])
    door.queues.released.clear()
    (door.queues.may_store if is_decided else door.queues.may_decide).clear()
    acks: Acks = {TOPIC: {0: [(3, 4, [ACCEPT])]}}
    last = (
        door.fetch(epoch=-1, acks=acks)
        if is_fetch
        else door.acknowledge(acks, share_session_epoch=-1)
    )
    task = asyncio.get_running_loop().create_task(last)
    await until(lambda: len(door.queues.acks) == 1)
    task.cancel()
    door.shares.connection_closed(1)
    await until(lambda: door.queues.released == [None])
    assert len(door.shares.sessions) == 0


async def test_the_refusal_of_one_session_too_many_waits_as_long_as_a_fetch() -> None:
    door = Door(sessions_max=0)
    loop = asyncio.get_running_loop()
    before = loop.time()
    limit = ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert await refused(door.fetch(epoch=0, partitions=[0], max_wait_ms=50)) is limit
    assert loop.time() - before >= 0.05


# Requests that are refused as a whole


@pytest.mark.parametrize(
    "fields",
    [
        {"group_id": None},
        {"member_id": None},
        {"member_id": ""},
        {"member_id": "m" * 37},
        {"share_acquire_mode": 2},
        {"is_renew_ack": True},
        {"acks": {TOPIC: {0: [(0, 0, [ACCEPT])]}}},
    ],
    ids=lambda fields: str(next(iter(fields.items())))[:20],
)
async def test_a_bad_request_is_refused_as_a_whole(fields: dict[str, Any]) -> None:
    door = Door()
    assert await refused(door.fetch(epoch=0, **fields)) is ErrorCode.INVALID_REQUEST
    assert door.queues.queries == door.queues.acks == []
    assert len(door.shares.sessions) == 0


async def test_a_request_that_renews_has_no_limits_and_fetches_nothing() -> None:
    door = Door()
    await door.fetch(epoch=0, partitions=[0])
    nothing = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0}
    acks: Acks = {TOPIC: {0: [(0, 1, [RENEW, ACCEPT])]}}
    answer = await door.fetch(epoch=1, acks=acks, is_renew_ack=True, **nothing)
    assert codes(answer) == {(5, 0): (NONE, NONE)}
    assert answer.acquisition_lock_timeout_ms == LOCK_MS
    assert len(door.queues.queries) == 1


# Records


async def test_leased_records_come_with_their_attempts() -> None:
    door = Door()
    door.queues.records[1] = AcquiredPartition(
        wanted=cast("Any", None),
        records=b"batches",
        ranges=[AcquiredRange(3, 5, 1), AcquiredRange(7, 7, 4)],
    )
    answer = await door.fetch(epoch=0, partitions=[0, 1], share_acquire_mode=RECORD_LIMIT)
    (topic,) = answer.responses
    (part,) = topic.partitions
    assert part.partition_index == 1
    assert part.records is not None
    assert bytes(part.records) == b"batches"
    found = [(r.first_offset, r.last_offset, r.delivery_count) for r in part.acquired_records]
    assert found == [(3, 5, 1), (7, 7, 4)]
    (query,) = door.queues.queries
    assert query.is_exact
    assert (query.records_max, query.batch_size, query.wait_ms_max) == (10, 10, 5)


class PinnedFile:
    def __init__(self) -> None:
        self.pins = 0

    def fileno(self) -> int:
        return -1

    def pread(self, length: int, position: int) -> bytes:
        return b"x" * length

    def pin(self) -> None:
        self.pins += 1

    def unpin(self) -> None:
        self.pins -= 1


async def test_records_of_an_answer_that_nobody_waits_for_are_let_go() -> None:
    door, file = Door(), PinnedFile()
    door.queues.waits = True
    call = share_fetch.handle(door.call(share_fetch.API, 2), fetch_request(partitions=[0]))
    while not door.queues.waiting:
        await asyncio.sleep(0)
    found = AcquiredPartition(
        wanted=door.queues.queries[0].wanted[0],
        records=FileRange(file, 0, 4),
        ranges=[AcquiredRange(0, 0, 1)],
    )
    door.queues.waiting[0].settle([found])
    Later.cancel(call)
    await asyncio.wait([call.task])
    await asyncio.sleep(0)
    assert file.pins == 0


async def test_a_poll_is_cancelled_with_its_connection() -> None:
    door = Door()
    door.queues.waits = True
    call = share_fetch.handle(door.call(share_fetch.API, 2), fetch_request(partitions=[0]))
    while not door.queues.waiting:
        await asyncio.sleep(0)
    call.cancel()
    await asyncio.wait([call.task])
    assert door.queues.waiting[0].is_settled


async def test_records_are_leased_while_what_is_acknowledged_is_being_stored() -> None:
    door = Door()
    await door.fetch(epoch=0, partitions=[0, 1])
    door.queues.may_store.clear()
    fetching = asyncio.ensure_future(door.fetch(epoch=1, acks={TOPIC: {0: [(0, 4, [ACCEPT])]}}))
    while len(door.queues.queries) < 2:
        await asyncio.sleep(0)
    assert door.queues.acks, "what was acked may be leased by the same request"
    await asyncio.sleep(0)
    assert not fetching.done(), "an ack is answered when it is stored"
    door.queues.may_store.set()
    assert codes(await fetching) == {(5, 0): (NONE, NONE)}


async def test_the_files_of_a_fetch_are_let_go_if_its_client_leaves_before_its_ack_is_stored() -> (
    None
):
    door, file = Door(), PinnedFile()
    await door.fetch(epoch=0, partitions=[0])
    found = AcquiredPartition(
        wanted=cast("Any", None), records=FileRange(file, 0, 9), ranges=[AcquiredRange(0, 4, 1)]
    )
    door.queues.records[0] = found
    door.queues.may_store.clear()
    request = fetch_request(epoch=1, acks={TOPIC: {0: [(0, 4, [ACCEPT])]}})
    call = share_fetch.handle(door.call(share_fetch.API, 2), request)
    while len(door.queues.queries) < 2:
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert file.pins == 1
    call.cancel()
    await asyncio.wait([call.task])
    assert file.pins == 0


@pytest.mark.parametrize("fields", [{"max_records": 0}, {"max_records": -1}, {"max_bytes": 0}])
async def test_a_request_for_nothing_leases_nothing(fields: dict[str, int]) -> None:
    door = Door()
    answer = await door.fetch(epoch=0, partitions=[0], **fields)
    assert answer.responses == []
    assert door.queues.queries == []


async def test_unknown_partitions_are_told_beside_the_others() -> None:
    door = Door()
    assert codes(await door.fetch(epoch=0, partitions=[0, 3, -1])) == {
        (5, 3): (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NONE),
        (5, -1): (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NONE),
    }
    answer = await door.fetch(epoch=0, partitions=[0], topic_id=NOBODY)
    assert codes(answer) == {(6, 0): (ErrorCode.UNKNOWN_TOPIC_ID, NONE)}


async def test_a_queue_that_no_member_asked_for_fails_as_on_kafka_but_says_why() -> None:
    door = Door()
    door.queues.records[2] = AcquiredPartition(
        wanted=cast("Any", None), reason=Reason.GROUP_ID_NOT_FOUND, detail="nobody has joined"
    )
    answer = await door.fetch(epoch=0, partitions=[0, 2])
    assert codes(answer) == {(5, 2): (ErrorCode.UNKNOWN_SERVER_ERROR, NONE)}
    assert answer.responses[0].partitions[0].error_message == "nobody has joined"
    door.queues.outcomes[TOPIC, 2] = Refused(Reason.GROUP_ID_NOT_FOUND, "nobody has joined")
    acknowledged = await door.acknowledge({TOPIC: {2: [(0, 0, [ACCEPT])]}})
    assert codes(acknowledged) == {(5, 2): (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,)}
    assert acknowledged.responses[0].partitions[0].error_message == "nobody has joined"


async def test_who_asks_the_wrong_broker_learns_the_right_one() -> None:
    door = Door()
    reason = Reason.NOT_LEADER_OR_FOLLOWER
    door.queues.records[2] = AcquiredPartition(wanted=cast("Any", None), reason=reason)
    answer = await door.fetch(epoch=0, partitions=[0, 2])
    (part,) = answer.responses[0].partitions
    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (part.current_leader.leader_id, part.current_leader.leader_epoch) == (7, 9)
    assert [(node.node_id, node.host) for node in answer.node_endpoints] == [(7, "there")]
    door.queues.outcomes[TOPIC, 2] = Refused(reason)
    acknowledged = await door.acknowledge({TOPIC: {2: [(0, 0, [ACCEPT])]}})
    assert acknowledged.responses[0].partitions[0].current_leader.leader_id == 7
    assert [node.node_id for node in acknowledged.node_endpoints] == [7]


# Acknowledgements


@pytest.mark.parametrize(
    ("batches", "version", "is_renew_ack"),
    [
        ([(5, 4, [ACCEPT])], 2, False),
        ([(0, 3, [ACCEPT]), (2, 4, [ACCEPT])], 2, False),
        ([(4, 5, [ACCEPT]), (0, 1, [ACCEPT])], 2, False),
        ([(-5, -3, [ACCEPT])], 2, False),
        ([(0, 0, [])], 2, False),
        ([(0, 3, [ACCEPT, ACCEPT])], 2, False),
        ([(0, 0, [5])], 2, True),
        ([(0, 0, [-1])], 2, False),
        ([(0, 0, [RENEW])], 2, False),
        ([(0, 0, [RENEW])], 1, True),
    ],
)
async def test_a_bad_acknowledgement_is_refused_for_its_partition(
    batches: list[tuple[int, int, list[int]]], version: int, is_renew_ack: bool
) -> None:
    door = Door()
    await door.fetch(epoch=0, partitions=[0])
    good = [(0, 1, [ACCEPT])]
    answer = await door.acknowledge(
        {TOPIC: {0: batches, 1: good}}, version=version, is_renew_ack=is_renew_ack
    )
    assert codes(answer) == {(5, 0): (ErrorCode.INVALID_REQUEST,), (5, 1): (NONE,)}
    assert [list(each) for each in door.queues.acks] == [[(TOPIC, 1)]]


async def test_batches_may_meet_in_one_offset() -> None:
    """As on Kafka; the queue refuses it, since the offset is not leased any more."""
    door = Door()
    await door.fetch(epoch=0, partitions=[0])
    await door.acknowledge({TOPIC: {0: [(0, 3, [ACCEPT]), (3, 4, [RELEASE])]}})
    assert len(door.queues.acks) == 1


async def test_acknowledgements_for_unknown_partitions_are_refused() -> None:
    door = Door()
    await door.fetch(epoch=0, partitions=[0])
    batch = [(0, 0, [ACCEPT])]
    answer = await door.acknowledge({TOPIC: {0: batch, 9: batch}, NOBODY: {0: batch}})
    assert codes(answer) == {
        (5, 0): (NONE,),
        (5, 9): (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,),
        (6, 0): (ErrorCode.UNKNOWN_TOPIC_ID,),
    }


async def test_the_answer_to_a_fetch_has_both_kinds_of_errors() -> None:
    door = Door()
    await door.fetch(epoch=0, partitions=[0, 1])
    door.queues.outcomes[TOPIC, 0] = Refused(Reason.UNKNOWN_SERVER_ERROR, "why")
    door.queues.records[1] = AcquiredPartition(
        wanted=cast("Any", None), reason=Reason.STORAGE_ERROR
    )
    answer = await door.fetch(epoch=1, acks={TOPIC: {0: [(0, 0, [ACCEPT])], 1: [(0, 0, [ACCEPT])]}})
    assert codes(answer) == {
        (5, 0): (NONE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (5, 1): (ErrorCode.KAFKA_STORAGE_ERROR, NONE),
    }
    messages = {p.partition_index: p.acknowledge_error_message for p in parts(answer)}
    assert messages[0] == "why"


def parts(response: ShareFetchResponse) -> list[Any]:
    return [part for topic in response.responses for part in topic.partitions]


# At the door


async def test_leases_go_back_when_the_connection_closes() -> None:
    queues = FakeQueues()
    async with open_house(share_fetch.API, queues=queues, topics=FakeTopics()) as house:
        client = await house.connect()
        frame = request_frame(fetch_request(partitions=[0]), ApiKey.SHARE_FETCH, 2, 1)
        client.send(frame)
        await client.read_frame()
        queues.released.clear()
        client.close()
        await house.settle(lambda: queues.released == [None])


async def test_a_poll_that_waits_holds_up_later_requests_of_its_connection() -> None:
    queues = FakeQueues()
    queues.waits = True
    async with open_house(share_fetch.API, queues=queues, topics=FakeTopics()) as house:
        client, other = await house.connect(), await house.connect()
        for epoch in (0, 1):
            request = fetch_request(epoch=epoch, partitions=[epoch])
            client.send(request_frame(request, ApiKey.SHARE_FETCH, 2, epoch))
        await house.settle(lambda: len(queues.waiting) == 1)
        request = fetch_request(epoch=0, partitions=[2])
        other.send(request_frame(request, ApiKey.SHARE_FETCH, 2, 1))
        await house.settle(lambda: len(queues.waiting) == 2)
        assert [each.wanted[0].partition for each in queues.queries] == [0, 2]
        for later in queues.waiting:
            later.settle([])
        queues.waits = False
        await client.read_frame()
