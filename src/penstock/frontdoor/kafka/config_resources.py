"""Turns the resources of Kafka's configuration APIs into the model's, and changes them."""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from enum import IntEnum
from typing import Protocol, TypeVar

from penstock.broker.configs import (
    BrokerResource,
    ClientMetricsResource,
    GroupResource,
    Resource,
    TopicResource,
)
from penstock.model.errors import Reason, Refused


class ResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


_UNSUPPORTED: dict[int, str] = {
    ResourceType.BROKER_LOGGER: "The log levels of this broker can't be read or changed here.",
}


class Named(Protocol):
    """A resource as a request names it."""

    resource_type: int
    resource_name: str


N = TypeVar("N", bound=Named)
C = TypeVar("C")


def resource_of(named: Named) -> Resource:
    if named.resource_type == ResourceType.TOPIC:
        return TopicResource(named.resource_name)
    if named.resource_type == ResourceType.BROKER:
        return BrokerResource(named.resource_name)
    if named.resource_type == ResourceType.CLIENT_METRICS:
        return ClientMetricsResource(named.resource_name)
    if named.resource_type == ResourceType.GROUP:
        return GroupResource(named.resource_name)
    unknown = f"Unknown resource type {named.resource_type}."
    raise Refused(Reason.INVALID_REQUEST, _UNSUPPORTED.get(named.resource_type, unknown))


async def change_all(
    asked: Sequence[N],
    change_of: Callable[[N], C],
    apply: Callable[[Sequence[tuple[Resource, C]]], Awaitable[Sequence[Refused | None]]],
) -> list[Refused | None]:
    """One answer per resource, in order: None when it was changed. The good ones go together."""
    times = Counter((each.resource_type, each.resource_name) for each in asked)
    answers: list[Refused | None] = [None] * len(asked)
    changes: dict[int, tuple[Resource, C]] = {}
    for position, each in enumerate(asked):
        try:
            if times[each.resource_type, each.resource_name] > 1:
                detail = "Each resource must appear at most once."
                raise Refused(Reason.INVALID_REQUEST, detail)
            if each.resource_type == ResourceType.TOPIC and not each.resource_name:
                raise Refused(Reason.INVALID_REQUEST, "Default topic resources are not allowed.")
            changes[position] = resource_of(each), change_of(each)
        except Refused as refused:
            answers[position] = refused
    try:
        outcomes = await apply(list(changes.values())) if changes else ()
    except Refused as refused:
        outcomes = [refused] * len(changes)
    for position, outcome in zip(changes, outcomes, strict=True):
        answers[position] = outcome
    return answers
