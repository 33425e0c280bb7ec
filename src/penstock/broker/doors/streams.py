"""Answers what doors ask about records: where to write, writing, reading."""

import asyncio

from penstock.broker.configs import TopicResource
from penstock.broker.doors import calls
from penstock.broker.doors.desk import Desk, Method
from penstock.broker.topics import NewTopic, Topic, check_topic_name, is_internal
from penstock.model.errors import Reason, Refused
from penstock.model.ids import TopicId

# How long a lookup of an offset may follow a partition from leader to leader.
FIND_S_MAX = 10.0
# What a read may take beyond the time that it waits for records.
READ_GRACE_S = 10.0
MESSAGE_BYTES_SETTING = "max.message.bytes"


async def find_topic(desk: Desk, call: calls.FindTopic) -> calls.TopicInfo:
    topic = desk.services.topics.find(call.name)
    if topic is None and call.may_create:
        topic = await _made(desk, call.name)
    if topic is None:
        check_topic_name(call.name)
        raise unknown_topic(call.name)
    (entry,) = desk.services.configs.describe(TopicResource(topic.name), [MESSAGE_BYTES_SETTING])
    return calls.TopicInfo(
        topic_id=topic.topic_id,
        name=topic.name,
        partitions=topic.partitions,
        message_bytes_max=int(entry.value or 0),
    )


def unknown_topic(name: str) -> Refused:
    return Refused(Reason.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {name!r}.")


async def _made(desk: Desk, name: str) -> Topic | None:
    """As for a client of Kafka that asks for a topic: only if the settings allow it."""
    topics = desk.services.topics
    if not topics.makes_missing or is_internal(name):
        return None
    outcome = (await topics.ensure([NewTopic(name=name, configs={})]))[name]
    if isinstance(outcome, Refused):
        raise outcome
    return outcome


async def identify(desk: Desk, _: calls.Identify) -> calls.ProducerIdentity:
    identity = await desk.services.producers.identify(None)
    return calls.ProducerIdentity(producer_id=identity.producer_id, epoch=identity.epoch)


async def publish(desk: Desk, call: calls.Publish) -> calls.Published:
    deadline = desk.services.clock.monotonic() + call.wait_s
    base_offset = await desk.services.forwarding.publish(
        TopicId(call.topic_id), call.partition, call.batch, deadline, call.expected
    )
    return calls.Published(base_offset=base_offset)


async def read(desk: Desk, call: calls.Read) -> calls.Batches:
    found = await desk.services.forwarding.read(
        TopicId(call.topic_id),
        call.partition,
        call.offset,
        bytes_max=call.bytes_max,
        wait_s=call.wait_s,
        deadline=desk.services.clock.monotonic() + call.wait_s + READ_GRACE_S,
    )
    return calls.Batches(
        batches=found.batches,
        log_start_offset=found.log_start_offset,
        high_watermark=found.high_watermark,
    )


async def find_offset(desk: Desk, call: calls.FindOffset) -> calls.FoundOffset:
    deadline = desk.services.clock.monotonic() + FIND_S_MAX
    found = await desk.services.forwarding.find(
        TopicId(call.topic_id), call.partition, call.timestamp_ms, deadline
    )
    return calls.FoundOffset(offset=found.offset, timestamp_ms=found.timestamp_ms)


async def ends(desk: Desk, topic: Topic, partition: int) -> tuple[int, int] | None:
    """Where a partition begins and ends; None while nobody can say."""
    find = desk.services.forwarding.find
    deadline = desk.services.clock.monotonic() + 1.0
    try:
        start, end = await asyncio.gather(
            find(topic.topic_id, partition, -2, deadline),
            find(topic.topic_id, partition, -1, deadline),
        )
    except Refused:
        return None
    return start.offset, end.offset


METHODS = (
    Method(calls.FindTopic, find_topic),
    Method(calls.Identify, identify),
    Method(calls.Publish, publish),
    Method(calls.Read, read),
    Method(calls.FindOffset, find_offset),
)
