"""The calls of doors about queues; calls.py says how they travel.

A door asks its own broker, which asks the leaders of the topic's partitions. What only brokers ask
each other is at the end.
"""

from uuid import UUID

from penstock.broker.doors.calls import Answer, Call, Done, declare

# Of one poll.
POLL_RECORDS_MAX = 10_000
POLL_BYTES_MAX = 16 * 1024 * 1024
POLL_WAIT_S_MAX = 60.0
LEASE_MS_MIN = 1_000
LEASE_MS_MAX = 12 * 3_600_000
# How long a record that is given back may wait.
NACK_DELAY_MS_MAX = 24 * 3_600_000
# Tokens of one request to a door, and of one call: the broker does nothing else meanwhile.
CLAIMS_MAX = 10_000
CLAIMS_PER_CALL_MAX = 1_000


# Polling


class LeasedPart(Answer):
    """What a poll got of one partition. Of the batches, only the records in the ranges are its."""

    partition: int
    batches: bytes
    # First and last offset, and the number of the attempt, counted from 1.
    ranges: list[tuple[int, int, int]]
    # The secret of these leases, which their tokens prove (model/lease_tokens.py).
    member_id: str


class Polled(Answer):
    """Nothing in it if nothing came in time, or while the queue is paused."""

    topic_id: UUID
    # How long the records are leased, from when the poll was answered.
    lease_ms: int
    parts: list[LeasedPart]


class PollQueue(Call[Polled]):
    """Leases records of any partition of a topic; waits up to `wait_s` until there are some.

    The group needs no members. A queue that is not there yet is made, and begins with the earliest
    record unless the group's settings say something else. `lease_ms` 0 stands for the group's
    setting."""

    topic: str
    group: str
    records_max: int
    lease_ms: int = 0
    wait_s: float = 0.0
    bytes_max: int = 4 * 1024 * 1024
    # By which the door can call it off; empty if it never will.
    poll_id: str = ""


class CallOffPoll(Call[Done]):
    """The one who asked is gone. The poll is refused with REQUEST_TIMED_OUT and has leased nothing,
    unless it is answered already: then the door has its answer, and gives it back."""

    poll_id: str


# Tokens


class Claim(Answer):
    """A token, taken apart."""

    partition: int
    offset: int
    attempt: int
    proof: bytes


class ClaimOutcomes(Answer):
    """In the order of the claims: "ok", "expired", "done", "unknown", "forbidden" (see
    queues/settling.py), or "unavailable" where no leader could be asked in time."""

    outcomes: list[str]
    # How long leases last that have begun again; a leader does not say it.
    lease_ms: int = 0


class SettleLeases(Call[ClaimOutcomes]):
    """What is to become of leased records: `verb` is "ack", "nack", "extend", "reject" or "undo".

    `lease_ms` is for "extend", and 0 stands for the group's setting. `delay_ms` is for "nack", and
    None follows the group's backoff."""

    topic: str
    group: str
    verb: str
    claims: list[Claim]
    lease_ms: int = 0
    delay_ms: int | None = None
    # Of the tokens. A topic that was made again under its name is another one.
    topic_id: UUID = UUID(int=0)


# Looking at queues


class PeekedPart(Answer):
    """What could be delivered next; of the batches, only the records in the ranges."""

    partition: int
    batches: bytes
    # First and last offset, and how often they were delivered so far.
    ranges: list[tuple[int, int, int]]


class Peeked(Answer):
    parts: list[PeekedPart]
    # Whether the queue has any partition yet.
    is_there: bool = True


class PeekQueue(Call[Peeked]):
    """Shows records without leasing them."""

    topic: str
    group: str
    records_max: int
    bytes_max: int = 1024 * 1024


class QueuePartition(Answer):
    """How much of one partition is in which state."""

    partition: int
    # Can be delivered now; with a member; wait for a time; wait for an earlier record of their key.
    ready: int
    leased: int
    delayed: int
    blocked: int
    # On their way to the dead-letter topic, arrived there, and brought back from it.
    dying: int
    dead: int
    redriven: int
    # When the oldest record that can be delivered was written, by its batch; -1 if there is none.
    oldest_ms: int
    # Too old to be delivered, since the leader opened the queue.
    expired: int = 0


class QueueState(Answer):
    """`oldest_age_ms` is -1 if nothing can be delivered."""

    partitions: list[QueuePartition]
    is_paused: bool
    oldest_age_ms: int


class QueueStats(Call[QueueState]):
    topic: str
    group: str


# Operating queues


class Purged(Answer):
    # How many records are not delivered any more.
    count: int


class PurgeQueue(Call[Purged]):
    """Nothing that can be delivered now, or that waits, is delivered any more; what is leased stays
    with who has it. `partitions` None means all of them."""

    topic: str
    group: str
    partitions: list[int] | None = None


class Redriven(Answer):
    reopened: int
    copied: int
    skipped: int
    # False if there is more to bring back: ask again.
    is_finished: bool


class RedriveQueue(Call[Redriven]):
    """Brings back dead letters of the group on the topic, at most `limit`."""

    topic: str
    group: str
    limit: int


class PauseQueue(Call[Done]):
    """Polls find nothing until the queue is resumed; acks and all else go on."""

    topic: str
    group: str


class ResumeQueue(Call[Done]):
    topic: str
    group: str


# Between brokers: at the coordinator of a group


class MakeQueues(Call[Done]):
    """Answered by the coordinator of the group. Each partition comes with where its queue starts,
    or -1 to follow the group's setting."""

    topic_id: UUID
    group: str
    starts: list[tuple[int, int]]


# Between brokers: at the leaders of partitions


class PollPartitions(Call[Polled]):
    """Answered by the leader of the partitions. The member id is of this poll alone."""

    topic_id: UUID
    group: str
    partitions: list[int]
    member_id: str
    records_max: int
    bytes_max: int
    lease_ms: int
    wait_s: float


class EndPoll(Call[Done]):
    """Nobody wants the answer of a poll any more: what it leased, or would, was never delivered."""

    topic_id: UUID
    group: str
    partitions: list[int]
    member_id: str


class SettlePartitions(Call[ClaimOutcomes]):
    topic_id: UUID
    group: str
    verb: str
    claims: list[Claim]
    lease_ms: int
    delay_ms: int | None


class PeekPartitions(Call[Peeked]):
    topic_id: UUID
    group: str
    partitions: list[int]
    records_max: int
    bytes_max: int


class StatPartitions(Call[QueueState]):
    topic_id: UUID
    group: str
    partitions: list[int]


class PurgePartitions(Call[Purged]):
    topic_id: UUID
    group: str
    partitions: list[int]


declare(dict(globals()))
