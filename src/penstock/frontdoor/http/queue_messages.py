"""What bodies about queues look like; messages.py has the others."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from penstock.broker.doors.queue_calls import (
    CLAIMS_MAX,
    LEASE_MS_MAX,
    LEASE_MS_MIN,
    NACK_DELAY_MS_MAX,
)
from penstock.frontdoor.http.limits import QUEUE_MESSAGES_MAX, WAIT_S_MAX
from penstock.frontdoor.http.messages import Partition, StoredRecord

LeaseMs = Annotated[int, Meta(ge=LEASE_MS_MIN, le=LEASE_MS_MAX)]
Tokens = Annotated[
    list[Annotated[str, Meta(min_length=1, max_length=200)]],
    Meta(min_length=1, max_length=CLAIMS_MAX),
]


class Nothing(Struct, forbid_unknown_fields=True):
    """An empty object."""


class Poll(Struct, forbid_unknown_fields=True):
    """What is wanted of a queue: at most `limit` messages, leased for `lease_ms` (what the group's
    settings say, if it is left out). Without messages it waits up to `wait_ms`."""

    limit: Annotated[int, Meta(ge=1, le=QUEUE_MESSAGES_MAX)] = 1
    lease_ms: LeaseMs | None = None
    wait_ms: Annotated[int, Meta(ge=0, le=int(WAIT_S_MAX * 1000))] = 0


class PeekedMessage(StoredRecord):
    """A message that could be delivered; `attempt` says how often it was so far."""

    attempt: int


class QueueMessage(StoredRecord):
    """A message that is leased. `attempt` counts from 1; `token` is for ack, nack and so on."""

    attempt: int
    token: str


class PolledMessages(Struct):
    """Empty if nothing came in time, or while the queue is paused."""

    messages: list[QueueMessage]
    lease_ms: int


class PeekedMessages(Struct):
    messages: list[PeekedMessage]


class AckTokens(Struct, forbid_unknown_fields=True):
    """Tokens of messages that are done with, or that nobody can process."""

    tokens: Tokens


class NackTokens(Struct, forbid_unknown_fields=True):
    """Tokens of messages to be tried again, after `delay_ms` (what the group's backoff says, if it
    is left out)."""

    tokens: Tokens
    delay_ms: Annotated[int, Meta(ge=0, le=NACK_DELAY_MS_MAX)] | None = None


class ExtendTokens(Struct, forbid_unknown_fields=True):
    """Tokens of leases that begin again now, for `lease_ms` (what the group's settings say, if it
    is left out)."""

    tokens: Tokens
    lease_ms: LeaseMs | None = None


class TokenResult(Struct, omit_defaults=True):
    """What came of a token. Everything but "ok" has changed nothing; `detail` says more. A lease
    that begins again lasts `lease_ms`."""

    token: str
    outcome: Literal["ok", "expired", "done", "unknown", "forbidden", "unavailable", "malformed"]
    detail: str = ""
    lease_ms: int = 0


class TokenResults(Struct):
    """One result for each token, in the order of the request."""

    results: list[TokenResult]


class QueuePartition(Struct):
    partition: int
    ready: int
    leased: int
    delayed: int
    blocked: int
    dying: int
    dead: int
    redriven: int
    expired: int


class Queue(Struct):
    """How much is in a queue. `ready` messages can be delivered now; `delayed` ones wait for their
    time, `blocked` ones for an earlier message of their key. `dying` ones are on their way to the
    dead-letter topic, and `dead` ones have arrived there. `expired` ones were too old, since the
    leaders of the partitions opened the queue. `oldest_age_ms` is the age of the oldest
    message that is ready, by its batch."""

    topic: str
    group: str
    paused: bool
    ready: int
    leased: int
    delayed: int
    blocked: int
    dying: int
    dead: int
    redriven: int
    expired: int
    oldest_age_ms: int | None
    partitions: list[QueuePartition]


class Purge(Struct, forbid_unknown_fields=True):
    """Of which partitions; of all, if that is left out."""

    partitions: Annotated[list[Partition], Meta(min_length=1, max_length=10_000)] | None = None


class PurgedMessages(Struct):
    purged: int


class Redrive(Struct, forbid_unknown_fields=True):
    """At most so many dead letters are brought back."""

    limit: Annotated[int, Meta(ge=1, le=1_000_000)] = 10_000


class RedrivenMessages(Struct):
    """`reopened` are delivered again where they are, `copied` were gone from the log, `skipped`
    stay dead. Ask again if it is not `finished`."""

    reopened: int
    copied: int
    skipped: int
    finished: bool
