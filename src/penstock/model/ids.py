"""Identifiers, each its own type so that the type checker keeps them apart."""

from typing import NamedTuple, NewType
from uuid import UUID

BrokerId = NewType("BrokerId", int)
TopicName = NewType("TopicName", str)
TopicId = NewType("TopicId", UUID)
PartitionIndex = NewType("PartitionIndex", int)
Offset = NewType("Offset", int)
Term = NewType("Term", int)
ProducerId = NewType("ProducerId", int)
ProducerEpoch = NewType("ProducerEpoch", int)
GroupId = NewType("GroupId", str)
MemberId = NewType("MemberId", str)
# A position in a Raft log. Never a client's offset: Raft's own entries take an index but no offset.
LogIndex = NewType("LogIndex", int)
DirectoryId = NewType("DirectoryId", str)

NO_TOPIC_ID = TopicId(UUID(int=0))


class TopicPartition(NamedTuple):
    """A partition by the name of its topic; a tuple because it is a key on the hot path."""

    topic: TopicName
    partition: PartitionIndex

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class PartitionId(NamedTuple):
    """A partition by the id of its topic, which is never used again: the name of a Raft group."""

    topic_id: TopicId
    partition: PartitionIndex

    def __str__(self) -> str:
        return f"{self.topic_id.hex}-{self.partition}"


class ReplicaId(NamedTuple):
    """Who votes and acknowledges: a node together with the data directory that remembers it.

    A node that comes back with an empty directory is someone else, so that nothing it promised
    before and has forgotten since can be counted.
    """

    node: BrokerId
    directory: DirectoryId

    def __str__(self) -> str:
        return f"{self.node}/{self.directory}"


# Producer ids show who gave them out. The cluster counts from 0. Those that follow from idempotency
# keys begin here,
KEYED_PRODUCERS_FROM = 2**61
# and here those of queues that append copies of records, by which polls recognise their batches.
COPIERS_FROM = 2**62


class LogEnd(NamedTuple):
    """Where a Raft log ends: the later term first, then the higher index (Raft, section 5.4.1)."""

    term: int = 0
    index: int = 0  # type: ignore[assignment]  # hides tuple.index, which nobody needs here

    def __str__(self) -> str:
        if self == UNKNOWN_END:
            return "an unknown position"
        return f"index {self.index} of term {self.term}"


NO_END = LogEnd()
# Of a log that lost its end without a trace: no other log is known to reach as far.
UNKNOWN_END = LogEnd(2**62, 2**62)
