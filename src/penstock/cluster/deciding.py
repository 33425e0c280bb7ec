"""How a change of the metadata comes about, on whichever node it is asked for.

On the controller a decision runs on the newest state. Elsewhere it runs on the committed copy of
that node, which ends at some offset, and the records go to the controller together with that
offset: they are appended only if the controller's log still ends there, else the decision is taken
again on a newer copy. What became of a try may be unknown, when the controller dies or the answer
is lost; the next try sees it, so a decision must take its own earlier doing for done. Only what
may have been its doing: a try that certainly came to nothing is not an excuse for the next.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, TypeVar

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

T = TypeVar("T")
Decision = Callable[[ClusterState], tuple[Sequence[ClusterRecord], T]]
Decided = tuple[T, Offset]
ClusterHost = Host[ClusterState, ClusterRecord]
ClusterFeed = Feed[ClusterState, ClusterRecord]


class Decider:
    def __init__(
        self,
        *,
        host: ClusterHost,
        feed: ClusterFeed,
        exchange: Exchange,
        broker_id: BrokerId,
        clock: Clock,
        random_below: Callable[[int], int],
    ) -> None:
        self._host = host
        self._feed = feed
        self._exchange = exchange
        self._broker_id = broker_id
        self._clock = clock
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

    async def decide(
        self, decision: Decision[T], tried: MutableMapping[Any, Any] | None = None
    ) -> Decided[T]:
        """The answer, and the offset up to which the metadata is known here and covers it.

        `tried` is where the decision notes what its tries wanted. What the first of them sees is
        as new as the request: what a later one then finds done was not done before it was asked
        for, and if it was not its own doing, it was that of somebody who asked at the same time.
        """
        notes: MutableMapping[Any, Any] = {} if tried is None else tried
        if tried is not None:
            await self.read_barrier()
        return await self.persist(
            lambda: self.decide_here(decision),
            lambda controller: self._decide_there(controller, decision, notes),
        )

    async def read_barrier(self) -> None:
        """Returns when the copy of this node holds all that was committed when this was called."""

        async def here() -> None:
            await self.catch_up(await self._commit([]))

        async def there(controller: BrokerId) -> None:
            request = _encode_request(ANY_OFFSET, [])
            reply = await self._exchange.call(controller, APPEND, request, CALL_TIMEOUT_S)
            end, _ = _decode_answer(reply)
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
        if not self._host.is_ready:
            raise Refused(Reason.NOT_CONTROLLER, "This broker is not the controller.")
        records, answer = decision(self._host.state)
        end = await self._commit(records)
        await self.catch_up(end)
        return answer, end

    async def _commit(self, records: Sequence[ClusterRecord]) -> Offset:
        """Returns where the log ended with them; what they were decided on is committed too."""
        done = self._host.submit(records)
        end = self._host.replica.log_end_offset
        await _within(COMMIT_TIMEOUT_S, done, "The change is not committed yet.")
        if not records:
            # No commit has shown that this is still the controller.
            confirmed = self._host.replica.confirm()
            await _within(
                COMMIT_TIMEOUT_S, confirmed, "The controller is not sure that it still leads."
            )
        return end

    async def _append_for(self, _: BrokerId, payload: bytes) -> bytes:
        expected, records = _decode_request(payload)
        if not self._host.is_ready:
            raise Refused(Reason.NOT_CONTROLLER, "This broker is not the controller.")
        end = self._host.replica.log_end_offset
        if expected not in (end, ANY_OFFSET):
            return _encode_answer(end, is_done=False)
        return _encode_answer(await self._commit(records), is_done=True)

    # Elsewhere

    async def _decide_there(
        self, controller: BrokerId, decision: Decision[T], tried: MutableMapping[Any, Any]
    ) -> Decided[T]:
        async with self._deciding_there:
            tried_before = dict(tried)
            offset = self._feed.applied
            records, answer = decision(self._feed.state)
            request = _encode_request(offset, records)
            reply = await self._exchange.call(controller, APPEND, request, CALL_TIMEOUT_S)
            end, is_done = _decode_answer(reply)
            if not is_done:
                tried.clear()
                tried.update(tried_before)
            await self.catch_up(end)
        if not is_done:
            raise Refused(Reason.NOT_CONTROLLER, "The metadata changes faster than this broker.")
        return answer, end

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


def _encode_request(offset: Offset, records: Sequence[ClusterRecord]) -> bytes:
    content = {"offset": offset, "records": [to_json(record) for record in records]}
    return json.dumps(content, separators=(",", ":")).encode()


def _decode_request(payload: bytes) -> tuple[Offset, list[ClusterRecord]]:
    try:
        content: Any = json.loads(payload)
        records = [from_json(key, value) for key, value in content["records"]]
        offset = Offset(int(content["offset"]))
        if offset == ANY_OFFSET and records:
            raise ValueError("records without the state that they were decided on")
        return offset, records
    except (KeyError, TypeError, ValueError, LookupError) as error:
        raise Refused(Reason.INVALID_REQUEST, f"not a change of metadata: {error!r}") from None


def _encode_answer(end: Offset, *, is_done: bool) -> bytes:
    return json.dumps({"end": end, "done": is_done}).encode()


def _decode_answer(reply: bytes) -> tuple[Offset, bool]:
    content = json.loads(reply)
    return Offset(content["end"]), content["done"]
