"""What is known of the cluster: brokers, topics, leaders; asked for when missing, old or wrong.

Several threads use one map. The lock covers the dictionaries alone, never the network.
"""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import NamedTuple, Protocol, TypeVar
from uuid import UUID

from penstock.client.connection import ANSWER_TIMEOUT_S, reason_of_failure, split_address
from penstock.client.errors import BrokerUnreachable, no_answer
from penstock.client.wire.errors import UnknownTopic
from penstock.client.wire.links import Links
from penstock.client.wire.patience import Patience, Waits
from penstock.client.wire.settings import WireSettings
from penstock.client.wire.topics import NO_LEADER, Leader, TopicView, unknown_topic, view_of
from penstock.model.endpoint import Endpoint
from penstock.model.ids import TopicPartition
from penstock.protocol.kafka.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

Answer = TypeVar("Answer")


class Location(NamedTuple):
    """Where a partition is led as far as is known; without an endpoint, nobody does."""

    endpoint: Endpoint | None
    epoch: int
    topic_id: UUID


class NodeHint(Protocol):
    """A broker's address in an answer about something else (KIP-951)."""

    node_id: int
    host: str
    port: int


class LeaderHint(Protocol):
    leader_id: int
    leader_epoch: int


class ClusterMap:
    def __init__(self, settings: WireSettings, links: Links) -> None:
        self._settings = settings
        self._links = links
        self._bootstrap = _endpoints(settings.bootstrap)
        self._lock = threading.Lock()
        self._brokers: dict[int, Endpoint] = {}
        self._topics: dict[str, TopicView] = {}
        # Who answered last is asked first.
        self._helpful: Endpoint | None = None
        self._waits = Waits()

    def patience(
        self, what: str, stop: threading.Event | None = None, *, limit_s: float | None = None
    ) -> Patience:
        """As long as the settings allow, or as `limit_s` says."""
        limit = self._retry_limit_s if limit_s is None else lambda: limit_s
        return Patience(what, limit, stop=stop, waits=self._waits)

    def _retry_limit_s(self) -> float:
        """An address where nobody has ever answered is probably wrong."""
        if self._helpful is None:
            return self._settings.first_contact_timeout_s
        return self._settings.retry_timeout_s

    # Topics

    def all_topics(self) -> list[TopicView]:
        return self._patiently(lambda: self._describe(None))

    def existing_topics(self, names: Iterable[str]) -> list[TopicView]:
        """Fresh descriptions of those of the topics that exist."""
        wanted = sorted(set(names))
        return self._patiently(lambda: self._describe(wanted)) if wanted else []

    def topic(self, name: str, *, may_create: bool = False) -> TopicView:
        """What is known of a topic, asked for if that is missing or old; raises UnknownTopic."""
        with self._lock:
            view = self._topics.get(name)
        if view is not None and time.monotonic() < view.seen_at + self._settings.metadata_ttl_s:
            return view
        return self.fresh_topic(name, may_create=may_create)

    def fresh_topic(self, name: str, *, may_create: bool = False) -> TopicView:
        found = self._patiently(lambda: self._describe([name], may_create=may_create))
        if not found:
            raise unknown_topic(name)
        return found[0]

    # Leaders

    def locate(self, partition: TopicPartition) -> Location:
        """Where the partition is led; asks one round at most.

        Raises UnknownTopic, and BrokerUnreachable if it has to ask and nobody answers.
        """
        with self._lock:
            view = self._topics.get(partition.topic)
        if view is None or view.leader(partition.partition).node == NO_LEADER:
            view = next(iter(self._describe([partition.topic])), None)
        if view is None:
            raise unknown_topic(partition.topic)
        leader = view.leaders.get(partition.partition)
        if leader is None:
            raise UnknownTopic(
                f"Topic {partition.topic} has no partition {partition.partition}:"
                f" it has {len(view.leaders)}.",
                topic=partition.topic,
            )
        with self._lock:
            return Location(self._brokers.get(leader.node), leader.epoch, view.topic_id)

    def forget_leader(self, partition: TopicPartition) -> None:
        """The next question about the partition goes to the cluster."""
        with self._lock:
            view = self._topics.get(partition.topic)
            if view is not None and partition.partition in view.leaders:
                # Its epoch stays, so that what is older is not believed again.
                epoch = view.leader(partition.partition).epoch
                view.leaders[partition.partition] = Leader(NO_LEADER, epoch)

    def take_hint(
        self, partition: TopicPartition, hint: LeaderHint | None, nodes: Sequence[NodeHint]
    ) -> bool:
        """Whether the answer of a broker that does not lead says who does, and it is news."""
        if hint is None or hint.leader_id < 0:
            return False
        with self._lock:
            self._brokers.update({one.node_id: Endpoint(one.host, one.port) for one in nodes})
            view = self._topics.get(partition.topic)
            if view is None or hint.leader_id not in self._brokers:
                return False
            known = view.leader(partition.partition)
            if hint.leader_epoch <= known.epoch and known.node != NO_LEADER:
                return False
            view.leaders[partition.partition] = Leader(hint.leader_id, hint.leader_epoch)
            return True

    # Questions that every broker answers for itself

    def ask_all(self, request: object, answer: type[Answer]) -> list[Answer]:
        """What each broker says that can be reached; raises BrokerUnreachable if none can."""
        self._patiently(lambda: self._describe([]))
        with self._lock:
            brokers = list(self._brokers.values())
        timeout_s = min(self._settings.request_timeout_s, ANSWER_TIMEOUT_S)
        reason, found = "", []
        for endpoint in brokers:
            try:
                with self._links.using(endpoint, timeout_s) as link:
                    found.append(link.ask(request, answer))
            except OSError as error:
                reason = reason_of_failure(error, timeout_s)
        if not found:
            raise no_answer(self._settings.bootstrap, reason)
        return found

    # Questions that any broker answers

    def ask_any(
        self, request: object, answer: type[Answer], *, patience: Patience | None = None
    ) -> Answer:
        """The first answer of anybody, after as many rounds as patience or the settings allow."""
        return self._patiently(lambda: self._ask_each(request, answer, _any_answer), patience)

    def _patiently(self, ask: Callable[[], Answer], patience: Patience | None = None) -> Answer:
        patience = patience or self.patience("finding a broker")
        while True:
            try:
                found = ask()
            except BrokerUnreachable as error:
                patience.pause(error)
            else:
                patience.progress()
                return found

    def _ask_each(
        self, request: object, answer: type[Answer], is_good: Callable[[Answer], bool]
    ) -> Answer:
        """One round over all addresses."""
        reason = "the address is empty"
        timeout_s = min(self._settings.request_timeout_s, ANSWER_TIMEOUT_S)
        for endpoint in self._candidates():
            try:
                with self._links.using(endpoint, timeout_s) as link:
                    found = link.ask(request, answer)
            except OSError as error:
                reason = reason_of_failure(error, timeout_s)
                continue
            if is_good(found):
                self._helpful = endpoint
                return found
            reason = "it does not know its cluster yet"
        raise no_answer(self._settings.bootstrap, reason)

    def _candidates(self) -> list[Endpoint]:
        with self._lock:
            helpful = [] if self._helpful is None else [self._helpful]
            ordered = chain(helpful, self._brokers.values(), self._bootstrap)
            return list(dict.fromkeys(ordered))

    def _describe(self, names: list[str] | None, *, may_create: bool = False) -> list[TopicView]:
        """One round; topics that do not exist are left out."""
        wanted = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=may_create)
        answer = self._ask_each(request, MetadataResponse, _names_brokers)
        found = [view for topic in answer.topics if (view := view_of(topic)) is not None]
        with self._lock:
            self._brokers = {one.node_id: Endpoint(one.host, one.port) for one in answer.brokers}
            for view in found:
                view.keep_newer(self._topics.get(view.name))
            for name in names or ():
                self._topics.pop(name, None)
            self._topics.update({view.name: view for view in found})
        return found


def _any_answer(_: object) -> bool:
    return True


def _names_brokers(answer: MetadataResponse) -> bool:
    return bool(answer.brokers)


def _endpoints(bootstrap: str) -> list[Endpoint]:
    addresses = [one for part in bootstrap.split(",") if (one := part.strip())]
    return [Endpoint(*split_address(address)) for address in addresses]
