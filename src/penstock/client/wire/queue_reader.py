"""Takes records of topics under a share group, one taker at a time for each record (KIP-932).

Threads of its own talk to the coordinator and to each leader. They keep what was taken leased
until it is settled, and follow leaders and coordinators that change. Nothing is leased before
somebody waits for it.
"""

import threading
from collections.abc import Iterable
from concurrent.futures import Future
from types import TracebackType
from typing import Self
from uuid import UUID

from penstock.client.errors import BrokerUnreachable, ClientError
from penstock.client.wire.cluster_map import ClusterMap
from penstock.client.wire.coordinators import Coordinators
from penstock.client.wire.errors import UnknownTopic, place
from penstock.client.wire.links import Links
from penstock.client.wire.patience import Patience, Stopped
from penstock.client.wire.queue_books import QueueBooks
from penstock.client.wire.queue_broker import QueueBroker
from penstock.client.wire.queue_leases import AckType, Lease, SharePlace, failed_outcome
from penstock.client.wire.queue_member import QueueMember
from penstock.client.wire.queue_session import ShareSession
from penstock.client.wire.settings import WireSettings
from penstock.client.wire.topics import ABSENCE_S_MAX
from penstock.model.endpoint import Endpoint
from penstock.model.ids import PartitionIndex, TopicName, TopicPartition

# How long brokers are waited for at the end; what they are not told by then ends with its lease.
CLOSE_S_MAX = 5.0


class QueueReader:
    """Several threads may take from one reader; each settles what it took, in any order."""

    def __init__(
        self,
        settings: WireSettings,
        links: Links,
        cluster_map: ClusterMap,
        group: str,
        topics: Iterable[str],
    ) -> None:
        self._settings = settings
        self._links = links
        self._map = cluster_map
        self._group = group
        self._topics = sorted(set(topics))
        self._books = QueueBooks(settings.fetch_wait_ms)
        self._names: dict[UUID, str] = {}
        self._brokers: dict[Endpoint, QueueBroker] = {}
        self._stop = threading.Event()
        self._member = QueueMember(
            cluster_map,
            Coordinators(settings, links, cluster_map),
            group,
            self._topics,
            assigned=self._assigned,
            failed=self._failed,
        )
        self._layout = threading.Thread(target=self._run, name=f"queue {group}", daemon=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def member_id(self) -> str:
        return self._member.member_id

    def start(self) -> None:
        """Joins the group; raises UnknownTopic, or BrokerUnreachable if nobody answers."""
        for name in self._topics:
            self._names[self._map.fresh_topic(name).topic_id] = name
        self._layout.start()
        self._member.start()

    def take(self, count_max: int = 1, timeout_s: float | None = None) -> list[Lease]:
        """Waits for at least one record; none if the time is over or nothing shall be taken.

        Raises what has gone wrong for good.
        """
        books = self._books
        with books.arrived:
            books.want(count_max)
            try:
                books.arrived.wait_for(
                    lambda: books.ready or books.failure or not books.is_fetching, timeout_s
                )
                if books.failure is not None and not books.ready:
                    raise books.failure
                return books.take(count_max)
            finally:
                books.want(-count_max)

    def stop_taking(self) -> None:
        """From now on nothing is leased; those who wait to take return."""
        with self._books.changed:
            self._books.is_fetching = False
            self._books.wake_all()

    def close(self, limit_s: float = CLOSE_S_MAX, *, settle_s: float = CLOSE_S_MAX) -> None:
        """Tells brokers what was settled, gives back the rest, and leaves the group.

        Waits for the first up to `settle_s`, and for each broker's answer to the end.
        """
        self.stop_taking()
        with self._books.changed:
            if self._books.is_closing:
                return
            self._books.changed.wait_for(
                lambda: self._books.is_settled() or self._books.failure is not None, settle_s
            )
            self._books.is_closing = True
            self._books.changed.notify_all()
        self._stop.set()
        if self._layout.is_alive():
            self._layout.join()
        for broker in self._brokers.values():
            broker.join(limit_s)
        with self._books.changed:
            self._books.leases.drop_all("the queue was closed")
        if self._member.is_started:
            self._member.leave(limit_s)

    def _settle(self, lease: Lease, wish: AckType) -> "Future[None]":
        with self._books.changed:
            held = self._books.leases.find(lease)
            if held is None or self._books.is_closing:
                return failed_outcome(lease, "its queue was closed, or its topic deleted")
            self._books.leases.wish(held, wish)
            self._books.changed.notify_all()
            return held.outcome

    # Who leads what

    def _assigned(self, places: frozenset[SharePlace]) -> None:
        with self._books.changed:
            self._books.assign(places)

    def _failed(self, error: BaseException) -> None:
        with self._books.changed:
            self._books.fail(error)

    def _run(self) -> None:
        patience = self._map.patience(f"the leaders of queue {self._group}", self._stop)
        try:
            while not self._stop.is_set():
                self._find_leaders(patience)
        except Stopped:
            return
        except BaseException as error:
            self._failed(error)

    def _find_leaders(self, patience: Patience) -> None:
        books = self._books
        with books.changed:
            books.changed.wait_for(lambda: books.is_closing or books.is_unled)
            if books.is_closing:
                return
            wanted = sorted(books.without_leader())
        complaints = [self._find_leader(one, patience) for one in wanted]
        found = [one for one in complaints if one is not None]
        if found:
            patience.pause(found[0])
        else:
            patience.progress()

    def _find_leader(self, at: SharePlace, patience: Patience) -> str | ClientError | None:
        """Why there is none, if so."""
        topic = self._topic(at.topic_id)
        if topic is None:
            return "the group was assigned a topic that is not known yet"
        partition = TopicPartition(TopicName(topic), PartitionIndex(at.partition))
        try:
            endpoint, _, topic_id = self._map.locate(partition)
        except BrokerUnreachable as error:
            return error
        except UnknownTopic as error:
            if patience.refused_s > ABSENCE_S_MAX:
                raise
            return error
        if topic_id != at.topic_id:
            self._gone(at)
            return None
        if endpoint is None:
            self._map.forget_leader(partition)
            return f"{place(partition)} has no leader"
        with self._books.changed:
            self._books.lead(at, endpoint)
        self._talk_to(endpoint)
        return None

    def _topic(self, topic_id: UUID) -> str | None:
        if topic_id not in self._names:
            for view in self._map.existing_topics(self._topics):
                self._names[view.topic_id] = view.name
        return self._names.get(topic_id)

    def _gone(self, at: SharePlace) -> None:
        """The topic was deleted and made again; the coordinator will assign the new one."""
        with self._books.changed:
            self._books.give_up(at, "its topic was deleted")

    def _talk_to(self, endpoint: Endpoint) -> None:
        if endpoint in self._brokers:
            return
        broker = QueueBroker(
            self._settings,
            self._links,
            self._map,
            self._books,
            ShareSession(self._group, self._member.member_id),
            endpoint,
            name_of_topic=lambda topic_id: self._names.get(topic_id, str(topic_id)),
            settle=self._settle,
        )
        self._brokers[endpoint] = broker
        broker.start()
