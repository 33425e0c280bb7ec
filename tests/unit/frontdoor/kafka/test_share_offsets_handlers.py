"""How far share groups are: what is asked of groups and queues, and what clients hear of it."""

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from penstock.broker.queues import QueueOffset
from penstock.frontdoor.kafka.api import Api, Call
from penstock.frontdoor.kafka.handlers import (
    alter_share_group_offsets,
    delete_share_group_offsets,
    describe_share_group_offsets,
)
from penstock.model.errors import Reason, Refused
from penstock.protocol.kafka.codec import decode, encode
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from penstock.protocol.kafka.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from penstock.protocol.kafka.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)

TOPIC, PARTITIONS = UUID(int=5), 2
T = SimpleNamespace(name="t", topic_id=TOPIC, partitions=PARTITIONS)
NONE, UNKNOWN = ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
ELSEWHERE = Refused(Reason.NOT_COORDINATOR, "elsewhere")


class Broker:
    """Groups and queues in one; `refused` refuses everything."""

    def __init__(self) -> None:
        self.refused: Refused | None = None
        self.found: dict[Any, Any] = {}
        self.outcomes: dict[Any, Refused | None] = {}
        self.asked: list[Any] = []

    def find(self, name: str) -> Any:
        return T if name == "t" else None

    def find_by_id(self, topic_id: UUID) -> Any:
        return T if topic_id == TOPIC else None

    async def describe_share(self, group_id: str) -> None:
        if self.refused is not None:
            raise self.refused

    async def describe_offsets(self, group_id: str, wanted: Any) -> Any:
        self.asked.append(wanted)
        return self.found

    async def alter_share_offsets(self, group_id: str, offsets: Any) -> Any:
        return self._answer(offsets)

    async def delete_share_offsets(self, group_id: str, topic_ids: Any) -> Any:
        return self._answer(topic_ids)

    def _answer(self, asked: Any) -> Any:
        if self.refused is not None:
            raise self.refused
        self.asked.append(asked)
        return {each: self.outcomes.get(each) for each in asked}

    async def ask(self, api: Api, version: int, request: Any) -> Any:
        services = SimpleNamespace(groups=self, queues=self, topics=self)
        call = Call(cast("Any", services), api.key, version, None, cast("Any", None), 0.0)
        answer = await api.handle(call, request)
        return decode(api.response, version, encode(answer, version))


async def described(broker: Broker, topics: dict[str, list[int]] | None, version: int = 1) -> Any:
    asked = topics and [
        DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=partitions)
        for name, partitions in topics.items()
    ]
    group = DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=asked)
    request = DescribeShareGroupOffsetsRequest(groups=[group])
    (answer,) = (await broker.ask(describe_share_group_offsets.API, version, request)).groups
    return answer.error_code, {
        (topic.topic_name, topic.topic_id.int, part.partition_index): (
            part.error_code,
            part.start_offset,
            part.leader_epoch,
            part.lag,
        )
        for topic in answer.topics
        for part in topic.partitions
    }


def offset(start: int, lag: int) -> QueueOffset:
    return QueueOffset(start=start, leader_epoch=3, lag=lag, delivery_complete_count=0)


async def test_named_partitions_are_described_whether_or_not_they_are_known() -> None:
    broker = Broker()
    broker.found = {
        (TOPIC, 0): offset(4, 6),
        (TOPIC, 7): Refused(Reason.UNKNOWN_TOPIC_OR_PARTITION),
    }
    code, found = await described(broker, {"t": [0, 1, 7], "nobody": [0]})
    assert code == NONE
    assert broker.asked == [{TOPIC: {0, 1, 7}}]
    assert found == {
        ("t", 5, 0): (NONE, 4, 3, 6),
        ("t", 5, 1): (NONE, -1, 0, -1),
        ("t", 5, 7): (UNKNOWN, -1, 0, -1),
        ("nobody", 0, 0): (NONE, -1, 0, -1),
    }


async def test_all_partitions_are_described_but_those_of_deleted_topics() -> None:
    broker = Broker()
    broker.found = {(UUID(int=9), 0): offset(1, 1), (TOPIC, 1): offset(4, 6)}
    assert await described(broker, None) == (NONE, {("t", 5, 1): (NONE, 4, 3, 6)})
    assert broker.asked == [None]


async def test_the_first_version_has_no_lag() -> None:
    broker = Broker()
    broker.found = {(TOPIC, 0): offset(4, 6)}
    assert (await described(broker, {"t": [0]}, 0))[1] == {("t", 5, 0): (NONE, 4, 3, -1)}


async def test_only_the_coordinator_describes_a_group() -> None:
    broker = Broker()
    broker.refused = ELSEWHERE
    assert await described(broker, None) == (ErrorCode.NOT_COORDINATOR, {})


async def altered(broker: Broker, offsets: dict[tuple[str, int], int]) -> Any:
    topics: dict[str, list[AlterShareGroupOffsetsRequestPartition]] = {}
    for (name, index), start in offsets.items():
        part = AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=start)
        topics.setdefault(name, []).append(part)
    named = [
        AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=parts)
        for name, parts in topics.items()
    ]
    request = AlterShareGroupOffsetsRequest(group_id="g", topics=named)
    answer = await broker.ask(alter_share_group_offsets.API, 0, request)
    return answer.error_code, {
        (topic.topic_name, topic.topic_id.int, part.partition_index): part.error_code
        for topic in answer.responses
        for part in topic.partitions
    }


async def test_offsets_are_altered_where_there_is_something_to_alter() -> None:
    broker = Broker()
    broker.outcomes = {(TOPIC, 1): Refused(Reason.NON_EMPTY_GROUP)}
    offsets = {("t", 0): 3, ("t", 1): 4, ("t", 2): 5, ("nobody", 0): 6}
    assert await altered(broker, offsets) == (
        NONE,
        {
            ("t", 5, 0): NONE,
            ("t", 5, 1): ErrorCode.NON_EMPTY_GROUP,
            ("t", 5, 2): UNKNOWN,
            ("nobody", 0, 0): UNKNOWN,
        },
    )
    assert broker.asked == [{(TOPIC, 0): 3, (TOPIC, 1): 4}]


async def test_an_offset_below_zero_is_refused() -> None:
    broker = Broker()
    assert await altered(broker, {("t", 0): -1}) == (
        NONE,
        {("t", 5, 0): ErrorCode.INVALID_REQUEST},
    )
    assert broker.asked == [{}]


async def test_a_group_may_refuse_to_be_altered() -> None:
    broker = Broker()
    broker.refused = Refused(Reason.NON_EMPTY_GROUP)
    assert await altered(broker, {("t", 0): 3}) == (ErrorCode.NON_EMPTY_GROUP, {})


async def deleted(broker: Broker, *topics: str) -> Any:
    named = [DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in topics]
    request = DeleteShareGroupOffsetsRequest(group_id="g", topics=named)
    answer = await broker.ask(delete_share_group_offsets.API, 0, request)
    return answer.error_code, {each.topic_name: each.error_code for each in answer.responses}


async def test_topics_are_forgotten_one_by_one() -> None:
    broker = Broker()
    assert await deleted(broker, "t", "nobody") == (NONE, {"t": NONE, "nobody": UNKNOWN})
    assert broker.asked == [[TOPIC]]
    broker.outcomes = {TOPIC: Refused(Reason.NON_EMPTY_GROUP)}
    assert await deleted(broker, "t") == (NONE, {"t": ErrorCode.NON_EMPTY_GROUP})


async def test_a_group_may_refuse_to_forget() -> None:
    broker = Broker()
    broker.refused = Refused(Reason.GROUP_ID_NOT_FOUND)
    assert await deleted(broker, "t") == (ErrorCode.GROUP_ID_NOT_FOUND, {})
