"""Incremental fetch sessions (KIP-227): the broker remembers what a consumer reads.

A consumer then names only the partitions whose position changed, and is told only of those that
have something new. Sessions are a bounded cache: when it is full, a session that was not used for a
while makes room, and if there is none the consumer simply goes on without a session.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from typing import NamedTuple

from penstock.model.clock import Clock
from penstock.model.errors import Reason, Refused
from penstock.model.file_ranges import FileRange
from penstock.model.ids import NO_TOPIC_ID, TopicId, TopicName
from penstock.replication.replica import Replica

NO_SESSION = 0
# A request with one of these epochs names all its partitions.
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EPOCH_MAX = 2**31 - 1
SESSION_ID_MAX = 2**31 - 1
# A session that was used within this time is not evicted for another one.
EVICTION_S = 120.0
# Partitions in all sessions together, which bounds what the cache may cost.
SESSION_PARTITIONS_MAX = 500_000

PartitionKey = tuple[Hashable, int]


def partition_key(topic: TopicName, topic_id: TopicId, partition: int) -> PartitionKey:
    return (topic if topic_id == NO_TOPIC_ID else topic_id, partition)


class Wanted:
    """One partition as a consumer asks for it, and what its session last told it."""

    __slots__ = (
        "bytes_max",
        "key",
        "last_fetched_term",
        "offset",
        "partition",
        "sent_high_watermark",
        "sent_log_start_offset",
        "term",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        topic: TopicName,
        topic_id: TopicId,
        partition: int,
        *,
        offset: int,
        bytes_max: int,
        term: int = -1,
        last_fetched_term: int = -1,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.offset = offset
        self.bytes_max = bytes_max
        self.term = term
        self.last_fetched_term = last_fetched_term
        self.key = partition_key(topic, topic_id, partition)
        self.sent_high_watermark = -1
        self.sent_log_start_offset = -1

    def move_to(self, newer: "Wanted") -> None:
        """Takes over the position of a later request."""
        self.offset = newer.offset
        self.bytes_max = newer.bytes_max
        self.term = newer.term
        self.last_fetched_term = newer.last_fetched_term


class Fetched:
    """What one partition answers: records, or why there are none."""

    __slots__ = (
        "cold_on",
        "diverging",
        "high_watermark",
        "log_start_offset",
        "reason",
        "records",
        "wanted",
    )

    def __init__(self, wanted: Wanted, reason: Reason | None = None) -> None:
        self.wanted = wanted
        self.reason = reason
        self.high_watermark = -1
        self.log_start_offset = -1
        self.records: FileRange | bytes | None = None
        # The replica whose disk the records may have to be read from before they can be sent.
        self.cold_on: Replica | None = None
        # The term that the consumer should go back to, and where it ended.
        self.diverging: tuple[int, int] | None = None

    def fail(self, reason: Reason) -> None:
        self.release()
        self.reason = reason
        self.high_watermark = self.log_start_offset = -1

    def release(self) -> None:
        """Lets go of the file; whoever drops an answer unsent must call this."""
        if isinstance(self.records, FileRange):
            self.records.release()
        self.records = None


class SessionStep(NamedTuple):
    """Where a request says that it stands in its session."""

    session_id: int
    epoch: int
    uses_topic_ids: bool


class FetchSession:
    __slots__ = ("epoch", "id", "partitions", "used_at", "uses_topic_ids")

    def __init__(self, session_id: int, partitions: Iterable[Wanted], uses_topic_ids: bool) -> None:
        self.id = session_id
        self.epoch = 1
        self.partitions = {wanted.key: wanted for wanted in partitions}
        self.uses_topic_ids = uses_topic_ids
        self.used_at = 0.0

    def update(self, wanted: Iterable[Wanted], forgotten: Iterable[PartitionKey]) -> None:
        for newer in wanted:
            known = self.partitions.get(newer.key)
            if known is None:
                self.partitions[newer.key] = newer
            else:
                known.move_to(newer)
        for key in forgotten:
            self.partitions.pop(key, None)

    def select(self, results: list[Fetched]) -> list[Fetched]:
        """What the consumer does not know yet; partitions with records go to the back of the line,
        so that the next answer begins with those that had their turn longest ago."""
        selected = []
        for fetched in results:
            wanted = fetched.wanted
            has_news = (
                fetched.records is not None
                or fetched.reason is not None
                or fetched.diverging is not None
                or fetched.high_watermark != wanted.sent_high_watermark
                or fetched.log_start_offset != wanted.sent_log_start_offset
            )
            if not has_news:
                continue
            selected.append(fetched)
            _remember(fetched)
            if fetched.records is not None and self.partitions.pop(wanted.key, None) is not None:
                self.partitions[wanted.key] = wanted
        return selected


def _remember(fetched: Fetched) -> None:
    wanted = fetched.wanted
    wanted.sent_log_start_offset = fetched.log_start_offset
    # After an error the partition is told of again, even if nothing but the error went away.
    wanted.sent_high_watermark = -1 if fetched.reason is not None else fetched.high_watermark


class FetchContext:
    """One request's view of its session, from its start to its answer."""

    __slots__ = ("_epoch", "_session", "_sessions", "_uses_topic_ids", "wanted")

    def __init__(
        self,
        wanted: list[Wanted],
        *,
        sessions: "FetchSessions | None" = None,
        session: FetchSession | None = None,
        uses_topic_ids: bool = False,
    ) -> None:
        self.wanted = wanted
        # Given when the answer may open a new session.
        self._sessions = sessions
        self._session = session
        self._epoch = session.epoch if session is not None else 0
        self._uses_topic_ids = uses_topic_ids

    def finish(self, results: list[Fetched]) -> tuple[int, list[Fetched]]:
        """The session to tell the consumer, and what of the results to send."""
        session = self._session
        if session is not None:
            if session.epoch != self._epoch:
                for fetched in results:
                    fetched.release()
                raise Refused(Reason.INVALID_FETCH_SESSION_EPOCH, "a later request overtook it")
            return session.id, session.select(results)
        if self._sessions is None:
            return NO_SESSION, results
        return self._sessions.open(results, self._uses_topic_ids), results


class FetchSessions:
    """All sessions of this node, least recently used first."""

    def __init__(
        self,
        *,
        clock: Clock,
        sessions_max: int,
        choose_id: Callable[[int], int],
        partitions_max: int = SESSION_PARTITIONS_MAX,
    ) -> None:
        self._clock = clock
        self._sessions_max = sessions_max
        self._partitions_max = partitions_max
        self._choose_id = choose_id
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self._partition_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(
        self, step: SessionStep, wanted: list[Wanted], forgotten: Iterable[PartitionKey]
    ) -> FetchContext:
        """What a request reads, by its session or by itself; refuses one that is out of step."""
        if step.epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._remove(step.session_id)
            if step.epoch == FINAL_EPOCH:
                return FetchContext(wanted)
            return FetchContext(wanted, sessions=self, uses_topic_ids=step.uses_topic_ids)
        session = self._find(step)
        before = len(session.partitions)
        session.update(wanted, forgotten)
        self._partition_count += len(session.partitions) - before
        if not session.partitions or self._partition_count > self._partitions_max:
            # An answer without a session tells the consumer to name everything again.
            self._remove(session.id)
            return FetchContext(list(session.partitions.values()))
        session.epoch = 1 if session.epoch == EPOCH_MAX else session.epoch + 1
        self._touch(session)
        return FetchContext(list(session.partitions.values()), session=session)

    def open(self, results: list[Fetched], uses_topic_ids: bool) -> int:
        """Makes a session of what was just answered; NO_SESSION when there is no room for it."""
        if not results or not self._make_room(len(results)):
            return NO_SESSION
        session_id = self._choose_id(SESSION_ID_MAX)
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._choose_id(SESSION_ID_MAX)
        for fetched in results:
            _remember(fetched)
        wanted = (fetched.wanted for fetched in results)
        session = FetchSession(session_id, wanted, uses_topic_ids)
        self._sessions[session_id] = session
        self._partition_count += len(session.partitions)
        self._touch(session)
        return session_id

    def _find(self, step: SessionStep) -> FetchSession:
        session = self._sessions.get(step.session_id)
        if session is None:
            detail = f"there is no fetch session {step.session_id}"
            raise Refused(Reason.FETCH_SESSION_ID_NOT_FOUND, detail)
        if session.epoch != step.epoch:
            detail = f"fetch session {session.id} is at {session.epoch}, not {step.epoch}"
            raise Refused(Reason.INVALID_FETCH_SESSION_EPOCH, detail)
        if session.uses_topic_ids != step.uses_topic_ids:
            detail = f"fetch session {session.id} began with another way to name topics"
            raise Refused(Reason.FETCH_SESSION_TOPIC_ID_ERROR, detail)
        return session

    def _touch(self, session: FetchSession) -> None:
        session.used_at = self._clock.monotonic()
        self._sessions.move_to_end(session.id)

    def _remove(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partition_count -= len(session.partitions)

    def _make_room(self, partitions: int) -> bool:
        now = self._clock.monotonic()
        while (
            len(self._sessions) >= self._sessions_max
            or self._partition_count + partitions > self._partitions_max
        ):
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now - oldest.used_at < EVICTION_S:
                return False
            self._remove(oldest.id)
        return True
