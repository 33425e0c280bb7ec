"""Gives the throttle of this node its rates, as the settings of all brokers say them.

What a broker may receive is bounded by those who send to it, since they decide when: each leader
takes an equal share. Who leads a partition whose replica catches up there, everybody knows from the
leaders' announcements.
"""

from collections.abc import Mapping
from typing import Final

from penstock.cluster.broker_settings import FOLLOWER_RATE, LEADER_RATE
from penstock.cluster.config_decisions import ALL_BROKERS
from penstock.cluster.coordinator import Cluster
from penstock.cluster.settings import LONG_MAX
from penstock.cluster.topic_settings import THROTTLED_FOLLOWERS
from penstock.model.ids import BrokerId, Offset
from penstock.replication.leaders import LeaderTable
from penstock.replication.throttle import TICKS_PER_S, NodeThrottle

# Shares change as replicas catch up and leaders change.
REVIEW_TICKS: Final = TICKS_PER_S


class Throttling:
    def __init__(self, *, cluster: Cluster, leaders: LeaderTable, throttle: NodeThrottle) -> None:
        self._cluster = cluster
        self._leaders = leaders
        self._throttle = throttle
        self._sending: int | None = None
        self._receiving: Mapping[BrokerId, float] = {}
        self._ticks = 0
        cluster.on_applied(self._applied)
        self._review()

    def tick(self) -> None:
        self._ticks += 1
        if self._receiving and self._ticks % REVIEW_TICKS == 0:
            self._review()

    def _applied(self, _: Offset) -> None:
        self._review()

    def _review(self) -> None:
        own = self._cluster.broker_id
        rates = {
            broker: rate
            for broker in self._cluster.brokers
            if broker != own and (rate := self._rate(broker, FOLLOWER_RATE)) is not None
        }
        receiving = self._shares(rates) if rates else {}
        sending = self._rate(own, LEADER_RATE)
        if (sending, receiving) != (self._sending, self._receiving):
            self._sending, self._receiving = sending, receiving
            self._throttle.set_rates(sending, receiving)

    def _rate(self, broker: BrokerId, name: str) -> int | None:
        """None is without bound."""
        for place in (str(broker), ALL_BROKERS):
            text = self._cluster.dynamic_broker_config(place).get(name)
            if text is not None:
                return None if int(text) == LONG_MAX else int(text)
        return None

    def _shares(self, rates: Mapping[BrokerId, int]) -> dict[BrokerId, float]:
        """This node's part of what others may receive, next to that of other leaders."""
        senders = {broker: {self._cluster.broker_id} for broker in rates}
        for topic in self._cluster.topics():
            if THROTTLED_FOLLOWERS not in topic.configs:
                continue
            throttled = self._cluster.config_for(topic.configs).throttled_followers
            for index, assignment in enumerate(topic.assignments):
                info = self._leaders.get(topic.partition_id(index))
                if info is None:
                    continue
                for broker in rates.keys() & set(assignment.hosts) - set(info.in_sync):
                    if throttled.has(index, broker):
                        senders[broker].add(info.leader)
        return {broker: rate / len(senders[broker]) for broker, rate in rates.items()}
