"""A thread that talks to one broker about the queue's partitions there: leases, settles, renews."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from types import MappingProxyType
from typing import Protocol, TypeVar
from uuid import UUID

from penstock.client.connection import reason_of_failure
from penstock.client.errors import ClientError
from penstock.client.wire.cluster_map import ClusterMap, LeaderHint, NodeHint
from penstock.client.wire.errors import Malformed, name_of, place, refused
from penstock.client.wire.link import Link
from penstock.client.wire.links import Links
from penstock.client.wire.patience import LOGGER, Stopped
from penstock.client.wire.queue_books import Acknowledge, Close, Fetch, QueueBooks
from penstock.client.wire.queue_leases import AckGroup, AckType, Held, Lease, SharePlace
from penstock.client.wire.queue_records import leased_records
from penstock.client.wire.queue_session import ShareSession
from penstock.client.wire.settings import WireSettings
from penstock.model.endpoint import Endpoint
from penstock.model.ids import PartitionIndex, TopicName, TopicPartition
from penstock.protocol.kafka.error_codes import RETRIABLE, ErrorCode
from penstock.protocol.kafka.messages.share_acknowledge import ShareAcknowledgeResponse
from penstock.protocol.kafka.messages.share_fetch import (
    ShareFetchPartitionData,
    ShareFetchResponse,
)
from penstock.records.errors import CorruptBatch

# Renewing a lease and asking for single records came with this version.
VERSION_MIN = 2
# A broker that answers sooner than it was asked to wait is not asked again at once.
EMPTY_PAUSE_S = 0.02
# The partition is led elsewhere, or the broker can't say by whom.
_MOVED_CODES = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
_NOTHING_SAID: Mapping[SharePlace, AckGroup] = MappingProxyType({})

Answer = TypeVar("Answer", ShareFetchResponse, ShareAcknowledgeResponse)


class _Part(Protocol):
    error_code: int
    error_message: str | None

    @property
    def current_leader(self) -> LeaderHint: ...


class QueueBroker:
    def __init__(
        self,
        settings: WireSettings,
        links: Links,
        cluster_map: ClusterMap,
        books: QueueBooks,
        session: ShareSession,
        endpoint: Endpoint,
        *,
        name_of_topic: Callable[[UUID], str],
        settle: "Callable[[Lease, AckType], Future[None]]",
    ) -> None:
        self._settings = settings
        self._links = links
        self._map = cluster_map
        self._books = books
        self._session = session
        self._endpoint = endpoint
        self._name_of_topic = name_of_topic
        self._settle = settle
        self._link: Link | None = None
        self._link_lock = threading.Lock()
        self._stop = threading.Event()
        self._patience = cluster_map.patience(f"the queue at {endpoint}", self._stop)
        self._thread = threading.Thread(target=self._run, name=f"queue at {endpoint}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self, limit_s: float) -> None:
        """Waits for the end; a broker that does not answer by then is not heard."""
        self._thread.join(limit_s)
        if self._thread.is_alive():
            self._stop.set()
            with self._link_lock:
                if self._link is not None:
                    self._link.abort()
            self._thread.join()

    def _run(self) -> None:
        try:
            while self._step():
                pass
        except Stopped:
            pass
        except BaseException as error:
            # It is raised where records are taken.
            with self._books.changed:
                self._books.fail(error)
        finally:
            self._close_link()
            with self._books.changed:
                self._books.retire(self._endpoint)

    def _step(self) -> bool:
        job = self._next_job()
        if isinstance(job, Close):
            self._close_session()
            return False
        if isinstance(job, Fetch):
            self._fetch(job)
        else:
            self._acknowledge(job.groups)
        return True

    def _next_job(self) -> Fetch | Acknowledge | Close:
        with self._books.changed:
            while True:
                job = self._books.next_job(self._endpoint, self._session)
                if job is not None:
                    return job
                if not self._books.led_by(self._endpoint):
                    # Whatever was wrong here is no reason to give up.
                    self._patience.progress()
                self._books.changed.wait(self._books.idle_s())

    # Leasing

    def _fetch(self, job: Fetch) -> None:
        bytes_max = self._settings.fetch_bytes_max
        request = self._session.fetch(
            job.places, records_max=job.records_max, bytes_max=bytes_max, wait_ms=job.wait_ms
        )
        asked_at = time.monotonic()
        try:
            answer = self._ask(request, ShareFetchResponse, job.wait_ms)
            if answer is None:
                return
            self._session.fetched(job.places)
            is_empty = self._take(answer)
        finally:
            with self._books.changed:
                self._books.fetch_ended(self._endpoint)
        is_early = time.monotonic() - asked_at < job.wait_ms / 2000
        pause_s = max(answer.throttle_time_ms / 1000, EMPTY_PAUSE_S * (is_empty and is_early))
        if pause_s and job.records_max:
            self._stop.wait(pause_s)

    def _take(self, answer: ShareFetchResponse) -> bool:
        """Whether there was nothing in it."""
        is_empty = True
        complaint = ""
        for topic in answer.responses:
            for part in topic.partitions:
                at = SharePlace(topic.topic_id, part.partition_index)
                if part.error_code == ErrorCode.NONE:
                    is_empty &= not part.acquired_records
                    self._lease(at, part, answer.acquisition_lock_timeout_ms / 1000)
                else:
                    complaint = self._partition_refused(at, part, answer.node_endpoints)
        if complaint:
            self._patience.pause(complaint)
        else:
            self._patience.progress()
        return is_empty

    def _lease(self, at: SharePlace, part: ShareFetchPartitionData, duration_s: float) -> None:
        partition = self._partition(at)
        data = part.records
        assert data is None or isinstance(data, memoryview)
        try:
            found = leased_records(data, part.acquired_records)
        except CorruptBatch as error:
            sentence = f"What the broker sent of {place(partition)} makes no sense: {error}."
            raise Malformed(sentence) from None
        with self._books.changed:
            now = self._books.clock()
            leases = self._books.leases
            for first, last in found.gaps:
                leases.add_gap(at, first, last)
            for record, attempt in found.records:
                lease = Lease(partition, at.topic_id, record, attempt, self._settle)
                fresh = Held(place=at, lease=lease)
                kept = leases.add(fresh)
                leases.renew_after(kept, now, duration_s)
                if kept is fresh:
                    self._books.give(fresh)

    # Settling and renewing

    def _acknowledge(self, groups: dict[SharePlace, AckGroup]) -> None:
        if not groups:
            return
        request = self._session.acknowledge(groups)
        answer = self._ask(request, ShareAcknowledgeResponse, groups=groups)
        if answer is None:
            return
        self._session.acknowledged()
        complaint = self._read(answer, groups)
        if complaint:
            self._patience.pause(complaint)
        else:
            self._patience.progress()

    def _read(self, answer: ShareAcknowledgeResponse, groups: dict[SharePlace, AckGroup]) -> str:
        left = dict(groups)
        complaint = ""
        for topic in answer.responses:
            for part in topic.partitions:
                at = SharePlace(topic.topic_id, part.partition_index)
                group = left.pop(at, [])
                if part.error_code == ErrorCode.NONE:
                    duration_s = answer.acquisition_lock_timeout_ms / 1000
                    with self._books.changed:
                        now = self._books.clock()
                        self._books.leases.succeeded(group, now, duration_s)
                        self._books.changed.notify_all()
                elif part.error_code in RETRIABLE:
                    with self._books.changed:
                        is_in_doubt = part.error_code not in _MOVED_CODES
                        self._books.leases.put_back(at, group, is_in_doubt=is_in_doubt)
                    complaint = self._partition_refused(at, part, answer.node_endpoints)
                else:
                    self._refused(at, group, part)
        if left:
            raise Malformed(f"The answer of {self._endpoint} leaves out a partition.")
        return complaint

    def _refused(self, at: SharePlace, group: AckGroup, part: _Part) -> None:
        sentence = part.error_message or name_of(part.error_code)
        with self._books.changed:
            renewal = self._books.leases.refused(at, group, sentence)
            self._books.changed.notify_all()
        if renewal is not None:
            LOGGER.warning(
                "A lease of %s can't be renewed: %s.",
                place(self._partition(at)),
                renewal.rstrip("."),
            )

    # What both have in common

    def _ask(
        self,
        request: object,
        answer: type[Answer],
        wait_ms: int = 0,
        groups: Mapping[SharePlace, AckGroup] = _NOTHING_SAID,
    ) -> Answer | None:
        """None if the session is over, after a pause; `groups` will then be said again."""
        timeout_s = self._settings.request_timeout_s + wait_ms / 1000
        try:
            found = self._opened(timeout_s).ask(request, answer, version_min=VERSION_MIN)
        except OSError as error:
            reason = f"{self._endpoint}: {reason_of_failure(error, timeout_s)}"
            self._session_lost(groups, is_broker_lost=True)
            self._patience.pause(reason, is_silent=True)
            return None
        if found.error_code == ErrorCode.NONE:
            return found
        self._session_lost(groups, is_broker_lost=False)
        if found.error_code not in RETRIABLE:
            raise refused("to share the queue", found.error_code, found.error_message)
        self._patience.pause(f"{self._endpoint}: {name_of(found.error_code)}")
        return None

    def _opened(self, timeout_s: float) -> Link:
        if self._link is None:
            link = self._links.borrow(self._endpoint, timeout_s)
            with self._link_lock:
                self._link = link
        if self._stop.is_set():
            raise Stopped
        self._link.set_timeout(timeout_s)
        return self._link

    def _session_lost(self, groups: Mapping[SharePlace, AckGroup], *, is_broker_lost: bool) -> None:
        """With its connection a broker forgets a session and gives back what it has leased."""
        self._close_link()
        self._session.reset()
        with self._books.changed:
            places = self._books.led_by(self._endpoint)
            for at, group in groups.items():
                self._books.leases.put_back(at, group, is_in_doubt=is_broker_lost)
            if is_broker_lost:
                self._books.leader_lost(places)
            else:
                self._books.session_lost(places)
        if is_broker_lost:
            for at in places:
                self._map.forget_leader(self._partition(at))

    def _partition_refused(self, at: SharePlace, part: _Part, nodes: Sequence[NodeHint]) -> str:
        """What passes by itself, in words; empty if it is clear where to go. Raises what does
        not pass."""
        code = part.error_code
        partition = self._partition(at)
        if code not in RETRIABLE:
            raise refused(f"to share {place(partition)}", code, part.error_message)
        if code not in _MOVED_CODES:
            return f"{place(partition)}: {name_of(code)}"
        hint = part.current_leader
        # A broker that does not know it says 0, which may be a broker's number, too.
        is_named = any(one.node_id == hint.leader_id for one in nodes)
        is_clear = is_named and self._map.take_hint(partition, hint, nodes)
        if not is_clear:
            self._map.forget_leader(partition)
        with self._books.changed:
            self._books.leader_lost([at])
        return "" if is_clear else f"{place(partition)}: {name_of(code)}"

    def _partition(self, at: SharePlace) -> TopicPartition:
        topic = TopicName(self._name_of_topic(at.topic_id))
        return TopicPartition(topic, PartitionIndex(at.partition))

    # The end

    def _close_session(self) -> None:
        if not self._session.is_open or self._link is None:
            return
        try:
            self._link.ask(self._session.close(), ShareAcknowledgeResponse, version_min=VERSION_MIN)
        except (OSError, ClientError):
            # The broker notices the end of the connection.
            return

    def _close_link(self) -> None:
        with self._link_lock:
            link, self._link = self._link, None
        if link is not None:
            link.close()
