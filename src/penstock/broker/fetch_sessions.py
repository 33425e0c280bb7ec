"""Incremental fetch sessions (KIP-227): the broker remembers what a consumer reads.

A consumer then names only the partitions whose position changed, and is told only of those that
have something new. Sessions are a bounded cache: when it is full, a session that was not used for a
while makes room, and if there is none the consumer simply goes on without a session.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import NamedTuple

from penstock.broker.partitions import Partitions
from penstock.broker.readers import Fetched, PartitionKey, Reader, Wanted
from penstock.model.clock import Clock
from penstock.model.errors import Reason, Refused

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


class SessionStep(NamedTuple):
    """Where a request says that it stands in its session."""

    session_id: int
    epoch: int
    uses_topic_ids: bool


class FetchSession:
    __slots__ = ("epoch", "id", "reader", "used_at", "uses_topic_ids")

    def __init__(self, session_id: int, reader: Reader, uses_topic_ids: bool) -> None:
        self.id = session_id
        self.epoch = 1
        self.reader = reader
        self.uses_topic_ids = uses_topic_ids
        self.used_at = 0.0


def _is_news(fetched: Fetched) -> bool:
    """Whether its consumer does not know it yet."""
    wanted = fetched.wanted
    return (
        not fetched.is_quiet
        or fetched.high_watermark != wanted.sent_high_watermark
        or fetched.log_start_offset != wanted.sent_log_start_offset
    )


def _remember(fetched: Fetched) -> None:
    wanted = fetched.wanted
    wanted.sent_log_start_offset = fetched.log_start_offset
    # After an error the partition is told of again, even if nothing but the error went away.
    wanted.sent_high_watermark = -1 if fetched.reason is not None else fetched.high_watermark


class FetchContext:
    """One request's view of its session, from its start to its answer."""

    __slots__ = ("_epoch", "_session", "_sessions", "_uses_topic_ids", "is_kept", "reader")

    def __init__(
        self,
        reader: Reader,
        *,
        sessions: "FetchSessions | None" = None,
        session: FetchSession | None = None,
        uses_topic_ids: bool = False,
        is_kept: bool = False,
    ) -> None:
        self.reader = reader
        # Whether the reader is used again by later requests.
        self.is_kept = is_kept or session is not None
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
            news = [fetched for fetched in results if _is_news(fetched)]
            for fetched in news:
                _remember(fetched)
            return session.id, news
        if self._sessions is None:
            return NO_SESSION, results
        session_id = self._sessions.open(self.reader, results, self._uses_topic_ids)
        self.is_kept = session_id != NO_SESSION
        return session_id, results


class FetchSessions:
    """All sessions of this node, least recently used first."""

    def __init__(
        self,
        *,
        partitions: Partitions,
        clock: Clock,
        sessions_max: int,
        choose_id: Callable[[int], int],
        partitions_max: int = SESSION_PARTITIONS_MAX,
    ) -> None:
        self._partitions = partitions
        self._clock = clock
        self._sessions_max = sessions_max
        self._partitions_max = partitions_max
        self._choose_id = choose_id
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        # Of all sessions, and of others that are remembered beside them.
        self.partition_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(
        self, step: SessionStep, wanted: Iterable[Wanted], forgotten: Iterable[PartitionKey]
    ) -> FetchContext:
        """What a request reads, by its session or by itself; refuses one that is out of step."""
        if step.epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._remove(step.session_id)
            reader = Reader(self._partitions, wanted)
            if step.epoch == FINAL_EPOCH:
                return FetchContext(reader)
            return FetchContext(reader, sessions=self, uses_topic_ids=step.uses_topic_ids)
        session = self._find(step)
        reader = session.reader
        before = len(reader)
        for one in wanted:
            reader.want(one)
        for key in forgotten:
            reader.forget(key)
        self.partition_count += len(reader) - before
        if not len(reader) or self.partition_count > self._partitions_max:
            # An answer without a session tells the consumer to name everything again.
            self._remove(session.id)
            return FetchContext(Reader(self._partitions, reader))
        session.epoch = 1 if session.epoch == EPOCH_MAX else session.epoch + 1
        self._touch(session)
        return FetchContext(reader, session=session)

    def open(self, reader: Reader, results: list[Fetched], uses_topic_ids: bool) -> int:
        """Makes a session of what was just answered; NO_SESSION when there is no room for it."""
        if not results or not self.make_room(len(reader)):
            return NO_SESSION
        session_id = self._choose_id(SESSION_ID_MAX)
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._choose_id(SESSION_ID_MAX)
        for fetched in results:
            _remember(fetched)
        reader.remembers_names = True
        session = FetchSession(session_id, reader, uses_topic_ids)
        self._sessions[session_id] = session
        self.partition_count += len(reader)
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
            self.partition_count -= len(session.reader)
            session.reader.close()

    def make_room(self, partitions: int) -> bool:
        now = self._clock.monotonic()
        while (
            len(self._sessions) >= self._sessions_max
            or self.partition_count + partitions > self._partitions_max
        ):
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now - oldest.used_at < EVICTION_S:
                return False
            self._remove(oldest.id)
        return True
