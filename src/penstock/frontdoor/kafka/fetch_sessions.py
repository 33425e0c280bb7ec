"""Incremental fetch sessions (KIP-227): the broker remembers what a consumer reads.

A consumer then names only the partitions whose position changed, and hears only of those that
have something new. Sessions are a bounded cache: when it is full, a session that was not used for a
while makes room, and if there is none the consumer simply goes on without a session.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import NamedTuple

from penstock.broker.fetch import FetchAnswer, Reading
from penstock.broker.readers import Fetched, PartitionKey, Reader, Wanted
from penstock.frontdoor.kafka.errors import RefusedWith
from penstock.model.clock import Clock
from penstock.protocol.kafka.error_codes import ErrorCode

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


class SessionAnswer(FetchAnswer):
    __slots__ = ("session_id",)

    def __init__(self, session_id: int, partitions: list[Fetched]) -> None:
        super().__init__(partitions)
        self.session_id = session_id


class FetchContext(Reading):
    """One request's view of its session, from its start to its answer."""

    __slots__ = ("_epoch", "_session", "_sessions", "_uses_topic_ids")

    def __init__(
        self,
        reader: Reader,
        *,
        sessions: "FetchSessions | None" = None,
        session: FetchSession | None = None,
        uses_topic_ids: bool = False,
        is_kept: bool = False,
    ) -> None:
        super().__init__(reader, is_kept=is_kept or session is not None)
        # Given when the answer may open a new session.
        self._sessions = sessions
        self._session = session
        self._epoch = session.epoch if session is not None else 0
        self._uses_topic_ids = uses_topic_ids

    def answer(self, results: list[Fetched]) -> SessionAnswer:
        """The session to tell the consumer, and what of the results to send."""
        session = self._session
        if session is not None:
            if session.epoch != self._epoch:
                detail = "a later request overtook it"
                raise RefusedWith(ErrorCode.INVALID_FETCH_SESSION_EPOCH, detail)
            news = [fetched for fetched in results if _is_news(fetched)]
            for fetched in news:
                _remember(fetched)
            return SessionAnswer(session.id, news)
        if self._sessions is None:
            return SessionAnswer(NO_SESSION, results)
        session_id = self._sessions.open(self.reader, results, self._uses_topic_ids)
        self.is_kept = session_id != NO_SESSION
        return SessionAnswer(session_id, results)


class FetchSessions:
    """All sessions of this node, least recently used first."""

    def __init__(
        self,
        *,
        make_reader: Callable[[Iterable[Wanted]], Reader],
        clock: Clock,
        sessions_max: int,
        random: Random | None = None,
        partitions_max: int = SESSION_PARTITIONS_MAX,
    ) -> None:
        self._make_reader = make_reader
        self._clock = clock
        self._sessions_max = sessions_max
        self._partitions_max = partitions_max
        self._random = Random() if random is None else random
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        # Of all sessions, and of the readers that are kept beside them.
        self._partition_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(
        self, step: SessionStep, wanted: Iterable[Wanted], forgotten: Iterable[PartitionKey]
    ) -> FetchContext:
        """What a request reads, by its session or by itself; refuses one that is out of step."""
        if step.epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._remove(step.session_id)
            reader = self._make_reader(wanted)
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
        self._partition_count += len(reader) - before
        if not len(reader) or self._partition_count > self._partitions_max:
            # An answer without a session tells the consumer to name everything again.
            self._remove(session.id)
            return FetchContext(self._make_reader(reader))
        session.epoch = 1 if session.epoch == EPOCH_MAX else session.epoch + 1
        self._touch(session)
        return FetchContext(reader, session=session)

    def open(self, reader: Reader, results: list[Fetched], uses_topic_ids: bool) -> int:
        """Makes a session of what was just answered; NO_SESSION when there is no room for it."""
        if not results or not self._make_room(len(reader)):
            return NO_SESSION
        session_id = self._random.randint(1, SESSION_ID_MAX)
        while session_id in self._sessions:
            session_id = self._random.randint(1, SESSION_ID_MAX)
        for fetched in results:
            _remember(fetched)
        reader.remembers_names = True
        session = FetchSession(session_id, reader, uses_topic_ids)
        self._sessions[session_id] = session
        self._partition_count += len(reader)
        self._touch(session)
        return session_id

    def keep(self, wanted: Sequence[Wanted]) -> Reader | None:
        """For a consumer without a session that is likely to ask for the same again; None if too
        much is remembered already."""
        if not self._make_room(len(wanted)):
            return None
        reader = self._make_reader(wanted)
        self._partition_count += len(reader)
        return reader

    def let_go(self, reader: Reader) -> None:
        """Of a reader that was kept."""
        self._partition_count -= len(reader)
        reader.close()

    def _find(self, step: SessionStep) -> FetchSession:
        session = self._sessions.get(step.session_id)
        if session is None:
            detail = f"there is no fetch session {step.session_id}"
            raise RefusedWith(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, detail)
        if session.epoch != step.epoch:
            detail = f"fetch session {session.id} is at {session.epoch}, not {step.epoch}"
            raise RefusedWith(ErrorCode.INVALID_FETCH_SESSION_EPOCH, detail)
        if session.uses_topic_ids != step.uses_topic_ids:
            detail = f"fetch session {session.id} started with another way to name topics"
            raise RefusedWith(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, detail)
        return session

    def _touch(self, session: FetchSession) -> None:
        session.used_at = self._clock.monotonic()
        self._sessions.move_to_end(session.id)

    def _remove(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partition_count -= len(session.reader)
            session.reader.close()

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
