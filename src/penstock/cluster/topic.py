"""A topic as the cluster's metadata holds it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from penstock.model.ids import TopicId, TopicName


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """Partitions from 0 up to `ready` exist on disk; those up to `partitions` are being made.

    The difference is what tells a creation that a crash cut short, which start-up completes, from
    a lost directory, which is damage.
    """

    name: TopicName
    topic_id: TopicId
    partitions: int
    ready: int
    configs: Mapping[str, str]
    internal: bool

    def __post_init__(self) -> None:
        assert 0 <= self.ready <= self.partitions

    @property
    def is_finished(self) -> bool:
        return self.ready == self.partitions

    def as_served(self) -> "Topic | None":
        """The topic with those partitions that clients can use; None while there is none."""
        if self.is_finished:
            return self
        return replace(self, partitions=self.ready) if self.ready else None
