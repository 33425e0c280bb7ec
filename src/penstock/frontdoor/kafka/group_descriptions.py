"""What the APIs that describe groups have in common whose partitions the broker assigns: consumer
groups (KIP-848) and share groups (KIP-932)."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar
from uuid import UUID

from penstock.frontdoor.kafka.api import Call
from penstock.frontdoor.kafka.errors import error_code
from penstock.frontdoor.kafka.handlers.describe_groups import ALL_OPERATIONS
from penstock.model.errors import Refused
from penstock.model.ids import GroupId
from penstock.protocol.kafka.error_codes import ErrorCode

Found = TypeVar("Found")
T = TypeVar("T")


async def describe_each(
    group_ids: Sequence[str],
    find: Callable[[GroupId], Awaitable[Found | None]],
    make: Callable[..., Any],
    described: Callable[[Found], Any],
    *,
    kind: str,
    with_operations: bool,
) -> list[Any]:
    """`make` makes the answer for a group without a description, and `described` the others."""

    async def describe(group_id: GroupId) -> Any:
        try:
            found = await find(group_id)
        except Refused as refused:
            return make(group_id=group_id, error_code=error_code(refused))
        if found is not None:
            return described(found)
        message = f"There is no {kind} {group_id}."
        code = ErrorCode.GROUP_ID_NOT_FOUND
        return make(group_id=group_id, error_code=code, error_message=message)

    answers = [await describe(GroupId(group_id)) for group_id in group_ids]
    for answer in answers:
        if with_operations and answer.error_code == ErrorCode.NONE:
            answer.authorized_operations = ALL_OPERATIONS
    return answers


def named(call: Call, topics: Mapping[UUID, frozenset[int]], make: Callable[..., T]) -> list[T]:
    """An assignment with the names of its topics. One that was deleted just now has none."""
    found = (
        (call.services.topics.find_by_id(each), partitions) for each, partitions in topics.items()
    )
    return [
        make(topic_id=topic.topic_id, topic_name=topic.name, partitions=sorted(partitions))
        for topic, partitions in found
        if topic is not None
    ]
