"""How a change of the metadata comes about, on whichever node it is asked for.

On the controller a decision runs on the newest state. Elsewhere it runs on the committed copy of
that node, which ends at some offset, and the records go to the controller together with that
offset: they are appended only if the controller's log still ends there, else the decision is taken
again on a newer copy.

What became of a try may be unknown, when the controller dies or the answer is lost. No second
decision is taken before that is known, since one request must not take effect twice. The place of
the try in the log tells: its records lie there, marked with its id, or others do, and then they
never will. Until something lies there the same records are sent again for the same place.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar
from uuid import UUID

from penstock.cluster.metadata_group import METADATA_KEY
from penstock.cluster.records import ClusterRecord, from_json, to_json
from penstock.cluster.state import ClusterState
from penstock.model.clock import Clock
from penstock.model.errors import Reason, Refused
from penstock.model.ids import BrokerId, Offset
from penstock.replication.exchange import Exchange
from penstock.replication.feed import Feed
from penstock.replication.hosting import Host

APPEND = "metadata.append"
NO_CONTROLLER = BrokerId(-1)
# Instead of the end of a copy: anyone who asks decides nothing and only wants to know the end.
ANY_OFFSET = Offset(-1)
# How long a change looks for a controller that takes it.
DECIDE_TIMEOUT_S = 10.0
CALL_TIMEOUT_S = 3.0
# A controller that can't commit for so long has lost its leadership, or is about to.
COMMIT_TIMEOUT_S = 5.0
# How long a copy may take to come up with what the controller said it has.
CATCH_UP_TIMEOUT_S = 3.0
RETRY_MS = 20
RETRY_JITTER_MS = 30
# The header of each record of a try; its value is the id of the try.
TRY_HEADER = "try"

# Nothing is wrong with the request: another try may find a controller, or find what it wanted.
_PASSING = frozenset(
    {
        Reason.NOT_CONTROLLER,
        Reason.NOT_LEADER_OR_FOLLOWER,
        Reason.LEADER_NOT_AVAILABLE,
        Reason.COORDINATOR_LOAD_IN_PROGRESS,
        Reason.REQUEST_TIMED_OUT,
    }
)

# Nothing was sent, or it was refused before it was appended. Others may have come after that.
_NOT_APPENDED = frozenset({Reason.NOT_CONTROLLER, Reason.LEADER_NOT_AVAILABLE})

T = TypeVar("T")
Decision = Callable[[ClusterState], tuple[Sequence[ClusterRecord], T]]
Decided = tuple[T, Offset]
ClusterHost = Host[ClusterState, ClusterRecord]
ClusterFeed = Feed[ClusterState, ClusterRecord]
# Where the log ends after a request to append, and whether it was granted.
Appended = tuple[Offset, bool]
Append = Callable[[Offset, Sequence[ClusterRecord], UUID | None], Awaitable[Appended]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Try(Generic[T]):
    """What was decided once on one state."""

    id: UUID
    # Where the log ended when it was decided: its records lie there or nowhere.
    offset: Offset
    records: Sequence[ClusterRecord]
    answer: T
    # It was decided on the committed copy, so that any controller may append it at its offset.
    # Nobody else may append what the controller decided on records that were not committed yet.
    is_portable: bool


@dataclass(slots=True, kw_only=True)
class _Request(Generic[T]):
    """What is asked for, and the last try of it while nobody knows what became of that."""

    decision: Decision[T]
    in_doubt: _Try[T] | None = None


class Decider:
    def __init__(
        self,
        *,
        host: ClusterHost,
        feed: ClusterFeed,
        exchange: Exchange,
        broker_id: BrokerId,
        clock: Clock,
        new_uuid: Callable[[], UUID],
        random_below: Callable[[int], int],
    ) -> None:
        self._host = host
        self._feed = feed
        self._exchange = exchange
        self._broker_id = broker_id
        self._clock = clock
        self._new_uuid = new_uuid
        self._random_below = random_below
        # Decisions of one node would only make each other fail.
        self._deciding_there = asyncio.Lock()
        exchange.serve(APPEND, self._append_for)

    @property
    def controller_id(self) -> BrokerId:
        if self._host.replica.is_leader:
            return self._broker_id
        known = self._exchange.leaders.get(METADATA_KEY)
        if known is None or known.leader == self._broker_id:
            return NO_CONTROLLER
        return known.leader if self._exchange.is_alive(known.leader) else NO_CONTROLLER

    async def decide(self, decision: Decision[T]) -> Decided[T]:
        """The answer, and the offset up to which the metadata is known here and covers it."""
        request = _Request(decision=decision)
        try:
            return await self.persist(
                partial(self._decide_here, request), partial(self._decide_there, request)
            )
        except Refused as refused:
            if request.in_doubt is not None and refused.reason is Reason.NOT_CONTROLLER:
                # It may have been done, or may still be.
                raise Refused(Reason.REQUEST_TIMED_OUT, refused.detail) from refused
            raise

    async def read_barrier(self) -> None:
        """Returns when the copy of this node holds all that was committed when this was called."""

        async def here() -> None:
            end, _ = await self._append(ANY_OFFSET, [], None)
            await self.catch_up(end)

        async def there(controller: BrokerId) -> None:
            end, _ = await self._append_there(controller, ANY_OFFSET, [], None)
            await self.catch_up(end)

        await self.persist(here, there)

    async def persist(
        self,
        here: Callable[[], Awaitable[T]],
        there: Callable[[BrokerId], Awaitable[T]],
    ) -> T:
        """Tries, here or at the controller, until it is done or refused for good."""
        deadline = self._clock.monotonic() + DECIDE_TIMEOUT_S
        while True:
            self._host.replica.check_running()
            is_here = self._host.is_ready
            try:
                return await here() if is_here else await there(self._controller())
            except Refused as refused:
                # A controller whose disk fails steps down, and another one takes over.
                was_here = is_here and not self._host.replica.is_leader
                lost_its_disk = was_here and refused.reason is Reason.STORAGE_ERROR
                if refused.reason not in _PASSING and not lost_its_disk:
                    raise
                if self._clock.monotonic() >= deadline:
                    raise _final(refused) from refused
            await asyncio.sleep((RETRY_MS + self._random_below(RETRY_JITTER_MS)) / 1000)

    def _controller(self) -> BrokerId:
        controller = self.controller_id
        if controller == self._broker_id:
            # It leads and is not ready: if a full disk is the reason, that is the answer.
            self._host.replica.check_writable()
        if controller in (NO_CONTROLLER, self._broker_id):
            raise Refused(Reason.NOT_CONTROLLER, "The cluster has no controller at the moment.")
        return controller

    # On the controller

    async def decide_here(self, decision: Decision[T]) -> Decided[T]:
        """Tries it once; after a refusal it may have been done all the same."""
        return await self._decide_here(_Request(decision=decision))

    async def _decide_here(self, request: _Request[T]) -> Decided[T]:
        if request.in_doubt is None:
            self._check_controller()
            end, state = self._host.replica.log_end_offset, self._host.state
            decided = self._decided(request, state, end, is_portable=False)
            return await self._carry_out(request, decided, self._append)
        return await self._clear_up(request, request.in_doubt, self._append)

    async def _append_for(self, _: BrokerId, payload: bytes) -> bytes:
        return _encode_answer(*await self._append(*_decode_request(payload)))

    async def _append(
        self, offset: Offset, records: Sequence[ClusterRecord], try_id: UUID | None
    ) -> Appended:
        """Appends them if the log ends at `offset`; returns when all of it is committed."""
        self._check_controller()
        end = self._host.replica.log_end_offset
        if offset not in (end, ANY_OFFSET):
            return end, False
        return await self._commit(records, try_id), True

    async def _commit(self, records: Sequence[ClusterRecord], try_id: UUID | None) -> Offset:
        """Returns where the log ended with them; what they were decided on is committed too."""
        headers = () if try_id is None else ((TRY_HEADER, try_id.bytes),)
        done = self._host.submit(records, headers)
        end = self._host.replica.log_end_offset
        await _within(COMMIT_TIMEOUT_S, done, "The change is not committed yet.")
        if not records:
            # No commit has shown that this is still the controller.
            confirmed = self._host.replica.confirm()
            await _within(
                COMMIT_TIMEOUT_S, confirmed, "The controller is not sure that it still leads."
            )
        return end

    def _check_controller(self) -> None:
        if not self._host.is_ready:
            raise Refused(Reason.NOT_CONTROLLER, "This broker is not the controller.")

    # Elsewhere

    async def _decide_there(self, request: _Request[T], controller: BrokerId) -> Decided[T]:
        append = partial(self._append_there, controller)
        async with self._deciding_there:
            if request.in_doubt is None:
                state, offset = self._feed.state, self._feed.applied
                decided = self._decided(request, state, offset, is_portable=True)
                return await self._carry_out(request, decided, append)
            return await self._clear_up(request, request.in_doubt, append)

    async def _append_there(
        self,
        controller: BrokerId,
        offset: Offset,
        records: Sequence[ClusterRecord],
        try_id: UUID | None,
    ) -> Appended:
        request = _encode_request(offset, records, try_id)
        return _decode_answer(
            await self._exchange.call(controller, APPEND, request, CALL_TIMEOUT_S)
        )

    # One try

    def _decided(
        self, request: _Request[T], state: ClusterState, offset: Offset, *, is_portable: bool
    ) -> _Try[T]:
        records, answer = request.decision(state)
        return _Try(
            id=self._new_uuid(),
            offset=offset,
            records=records,
            answer=answer,
            is_portable=is_portable,
        )

    async def _carry_out(
        self, request: _Request[T], decided: _Try[T], append: Append
    ) -> Decided[T]:
        # What changes nothing may be decided again at any time.
        request.in_doubt = decided if decided.records else None
        try:
            end, is_done = await append(decided.offset, decided.records, decided.id)
        except Refused as refused:
            if refused.reason in _NOT_APPENDED:
                request.in_doubt = None
            raise
        await self.catch_up(end)
        return self._answered(request, decided, end, is_done=is_done)

    async def _clear_up(self, request: _Request[T], decided: _Try[T], append: Append) -> Decided[T]:
        """Finds out what became of the try in doubt; what was sent is sent once more for that.

        What was sent may be under way still, so something has to come to lie at its place. What
        this node appended as the controller is not under way: if a controller has fewer records
        now, another one has taken over without it, and it will never be committed.
        """
        if decided.is_portable:
            end, _ = await append(decided.offset, decided.records, decided.id)
            if end <= decided.offset:
                # It is not the controller any more, and does not know it yet.
                raise Refused(Reason.NOT_CONTROLLER, "The controller knows less than this broker.")
        else:
            end, _ = await append(ANY_OFFSET, [], None)
        await self.catch_up(end)
        is_done = await self._is_committed(decided)
        return self._answered(request, decided, end, is_done=is_done)

    async def _is_committed(self, decided: _Try[Any]) -> bool:
        if self._feed.applied <= decided.offset:
            return False
        found = await self._feed.record_at(decided.offset)
        if found is None:
            detail = "It is not known any more whether the change was made."
            raise Refused(Reason.REQUEST_TIMED_OUT, detail)
        return (TRY_HEADER, decided.id.bytes) in found.headers

    def _answered(
        self, request: _Request[T], decided: _Try[T], end: Offset, *, is_done: bool
    ) -> Decided[T]:
        request.in_doubt = None
        if not is_done:
            raise Refused(Reason.NOT_CONTROLLER, "The metadata changes faster than this broker.")
        return decided.answer, end

    async def catch_up(self, offset: Offset, timeout_s: float = CATCH_UP_TIMEOUT_S) -> None:
        """Waits until the copy of this node is that far; refuses when it takes too long."""
        if self._feed.applied < offset:
            detail = f"This broker knows the metadata up to {self._feed.applied}, not {offset}."
            await _within(timeout_s, self._feed.wait_for(offset), detail)


async def _within(timeout_s: float, work: Awaitable[None], detail: str) -> None:
    """Waits, but not without end; what comes later comes without the one who waited."""
    try:
        async with asyncio.timeout(timeout_s):
            await work
    except TimeoutError:
        raise Refused(Reason.REQUEST_TIMED_OUT, detail) from None


def _final(refused: Refused) -> Refused:
    """What the asker gets when no try succeeded."""
    if refused.reason == Reason.REQUEST_TIMED_OUT:
        return refused
    return Refused(Reason.NOT_CONTROLLER, refused.detail)


def _encode_request(offset: Offset, records: Sequence[ClusterRecord], try_id: UUID | None) -> bytes:
    content = {
        "offset": offset,
        "records": [to_json(record) for record in records],
        "try": None if try_id is None else try_id.hex,
    }
    return json.dumps(content, separators=(",", ":")).encode()


def _decode_request(payload: bytes) -> tuple[Offset, list[ClusterRecord], UUID | None]:
    try:
        content: Any = json.loads(payload)
        records = [from_json(key, value) for key, value in content["records"]]
        offset = Offset(int(content["offset"]))
        try_id = None if content["try"] is None else UUID(hex=content["try"])
        if records and (offset == ANY_OFFSET or try_id is None):
            raise ValueError("records without the state that they were decided on")
        return offset, records, try_id
    except (AttributeError, KeyError, TypeError, ValueError, LookupError) as error:
        raise Refused(Reason.INVALID_REQUEST, f"not a change of metadata: {error!r}") from None


def _encode_answer(end: Offset, is_done: bool) -> bytes:
    return json.dumps({"end": end, "done": is_done}).encode()


def _decode_answer(reply: bytes) -> Appended:
    content = json.loads(reply)
    return Offset(content["end"]), content["done"]
