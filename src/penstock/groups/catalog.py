"""What groups need to know of topics: their ids, names and numbers of partitions."""

import hashlib
from collections.abc import Iterable
from typing import NamedTuple, Protocol
from uuid import UUID


class KnownTopic(NamedTuple):
    topic_id: UUID
    name: str
    partitions: int


class TopicCatalog(Protocol):
    """The topics of the cluster, as far as this node knows them by now."""

    def find(self, name: str) -> KnownTopic | None: ...

    def find_by_id(self, topic_id: UUID) -> KnownTopic | None: ...

    def all(self) -> Iterable[KnownTopic]: ...


def metadata_hash(topics: Iterable[KnownTopic]) -> int:
    """Another number when a topic came, went, was made again or has more partitions.

    Kafka stores a hash in the same place; only whoever wrote one compares it, so ours may differ.
    """
    found = sorted(topics)
    if not found:
        return 0
    digest = hashlib.blake2b(digest_size=8)
    for topic in found:
        digest.update(topic.topic_id.bytes)
        digest.update(topic.partitions.to_bytes(4, "big"))
    return int.from_bytes(digest.digest(), "big", signed=True)
