"""Who leads which partition, as far as leaders have announced it.

It never goes back: the highest term wins, and a term has one leader. Whether that leader is still
there is another question.
"""

from collections.abc import Callable
from typing import NamedTuple

from penstock.model.ids import BrokerId, PartitionId, PartitionIndex, Term, TopicId
from penstock.replication.commit import report_bug

Changed = Callable[[PartitionId], None]


class LeaderInfo(NamedTuple):
    term: Term
    leader: BrokerId
    # As the leader knows it: the voters that have caught up, itself among them.
    in_sync: tuple[int, ...]


class LeaderTable:
    def __init__(self) -> None:
        self._topics: dict[TopicId, dict[PartitionIndex, LeaderInfo]] = {}
        self._callbacks: list[Changed] = []

    def get(self, key: PartitionId) -> LeaderInfo | None:
        partitions = self._topics.get(key[0])
        return None if partitions is None else partitions.get(key[1])

    def learn(self, key: PartitionId, info: LeaderInfo) -> bool:
        """Says whether that was news."""
        partitions = self._topics.setdefault(key.topic_id, {})
        known = partitions.get(key.partition)
        if known is not None and not _is_news(known, info):
            return False
        partitions[key.partition] = info
        for callback in self._callbacks:
            try:
                callback(key)
            except Exception as bug:
                report_bug("handling a new leader failed", bug)
        return True

    def forget_topic(self, topic_id: TopicId) -> None:
        self._topics.pop(topic_id, None)

    def on_change(self, callback: Changed) -> None:
        """`callback` is called whenever the leader, its term or the in-sync set is another."""
        self._callbacks.append(callback)


def _is_news(known: LeaderInfo, info: LeaderInfo) -> bool:
    if info.term != known.term:
        return info.term > known.term
    return info.leader == known.leader and info.in_sync != known.in_sync
