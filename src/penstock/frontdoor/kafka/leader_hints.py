"""Tells clients that came to the wrong broker where to go, in the same answer (KIP-951)."""

from collections.abc import Iterable

from penstock.broker.leaderships import Broker, Leader, Leaderships
from penstock.model.errors import Reason
from penstock.model.ids import BrokerId, TopicId, TopicName

# The refusals after which a client would ask for the leader.
HINTED = (Reason.NOT_LEADER_OR_FOLLOWER, Reason.FENCED_LEADER_EPOCH)


class LeaderHints:
    """The hints of one answer: a leader per partition, and each leader's address once."""

    __slots__ = ("_brokers", "_leaderships")

    def __init__(self, leaderships: Leaderships) -> None:
        self._leaderships = leaderships
        self._brokers: dict[BrokerId, Broker] = {}

    def find(self, topic: TopicName, topic_id: TopicId, partition: int) -> Leader | None:
        """None where no better broker is known than the one that was asked."""
        leader = self._leaderships.hint(topic, topic_id, partition)
        broker = None if leader is None else self._leaderships.broker(leader.node)
        if leader is None or broker is None:
            return None
        self._brokers[leader.node] = broker
        return leader

    def brokers(self) -> Iterable[Broker]:
        return self._brokers.values()
