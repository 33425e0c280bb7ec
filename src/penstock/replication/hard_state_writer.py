"""Group commit of terms and votes: whatever the replicas of a node promise in one turn of the loop
is made durable together, in one write and one sync of the file that they share.

A disk that does not answer in time can't take a vote, so no replica of the node stands for election
then, and those that lead make room for others: the file that they share is beside their logs.
"""

import asyncio
import logging
from collections.abc import Callable

from penstock.model.ids import PartitionId, TopicId
from penstock.raft.entries import HardState
from penstock.replication.write_side import DiskHangs, WriteSide
from penstock.storage.file_system import SyncFailed
from penstock.storage.hard_states import HardStates, StoredHardState

logger = logging.getLogger(__name__)

# How long a write that failed, as on a full disk, waits before it is tried again.
RETRY_AFTER_S = 1.0
NO_VOTE = -1

# Called on the loop: with None once durable, with the error if that will never be.
Durable = Callable[[Exception | None], None]
_Request = tuple[Callable[[], None], Durable | None]


def stored(state: HardState, *, is_gone: bool = False) -> StoredHardState:
    if state.vote is None:
        return StoredHardState(state.term, NO_VOTE, "", is_gone)
    return StoredHardState(state.term, state.vote.node, state.vote.directory, is_gone)


class HardStateWriter:
    """The queue in front of the file, and the job that empties it."""

    __slots__ = (
        "_broken",
        "_idle",
        "_is_closing",
        "_is_running",
        "_loop",
        "_queue",
        "_retry",
        "_side",
        "_since",
        "_states",
        "hangs",
    )

    def __init__(self, states: HardStates, side: WriteSide) -> None:
        self._states = states
        self._side = side
        # When the job that runs was handed over, in ticks, and why it counts as failed.
        self._since = 0
        self.hangs: DiskHangs | None = None
        self._loop = asyncio.get_running_loop()
        self._queue: list[_Request] = []
        self._is_running = False
        self._broken: Exception | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._is_closing = False
        self._idle: list[asyncio.Future[None]] = []

    def get(self, key: PartitionId) -> StoredHardState | None:
        return self._states.get(key)

    def put(self, key: PartitionId, state: StoredHardState, done: Durable | None = None) -> None:
        self._add(lambda: self._states.put(key, state), done)

    def mark(self, key: PartitionId, *, is_gone: bool, done: Durable | None = None) -> None:
        """The replica moved away; or it came back and has everything again."""

        def change() -> None:
            # Not the state as it is now, but as it is after all that was asked for before.
            known = self._states.get(key)
            if known is not None:
                self._states.put(key, known._replace(is_gone=is_gone))

        self._add(change, done)

    def forget_topic(self, topic_id: TopicId) -> None:
        """Its groups will never vote again: the id of a topic is not used twice."""
        self._add(lambda: self._states.forget_topic(topic_id), None)

    def check_deadline(self) -> None:
        """With every tick."""
        is_at_work = self._is_running and self._retry is None
        if is_at_work and self.hangs is None and self._side.is_over(self._since):
            self.hangs = self._side.error()
            logger.error("terms and votes can't be written: %s", self.hangs)

    async def close(self) -> None:
        """Waits until everything asked for is durable, or can't be; nothing is tried again."""
        self._is_closing = True
        while self._is_running and self._retry is None and self._broken is None:
            done: asyncio.Future[None] = self._loop.create_future()
            self._idle.append(done)
            await done

    def _add(self, change: Callable[[], None], done: Durable | None) -> None:
        self._queue.append((change, done))
        if not self._is_running:
            self._is_running = True
            self._since = self._side.now
            self._loop.call_soon(self._start)

    def _start(self) -> None:
        if self._broken is not None:
            self._failed(self._take(), self._broken)
        elif self._queue:
            self._submit(self._take())
        else:
            self._is_running = False
            self._wake_idle()

    def _submit(self, requests: list[_Request]) -> None:
        self._since = self._side.now
        self._side.start(self._run, requests)

    def _take(self) -> list[_Request]:
        taken, self._queue = self._queue, []
        return taken

    def _finished(self, requests: list[_Request], error: Exception | None) -> None:
        self.hangs = None
        for _, done in requests:
            if done is not None:
                done(error)
        self._start()

    def _failed(self, requests: list[_Request], error: Exception) -> None:
        """After a failed sync nobody knows what is on disk: nothing may be promised any more."""
        self._broken = error
        self._is_running = False
        self.hangs = None
        for _, done in requests:
            if done is not None:
                done(error)
        self._wake_idle()

    def _write_failed(self, requests: list[_Request], error: OSError) -> None:
        logger.error("terms and votes can't be written: %s", error)
        self.hangs = None
        if self._is_closing:
            self._wake_idle()
        self._retry = self._loop.call_later(RETRY_AFTER_S, self._try_again, requests)

    def _try_again(self, requests: list[_Request]) -> None:
        self._retry = None
        if not self._is_closing:
            self._submit(requests)

    def _wake_idle(self) -> None:
        idle, self._idle = self._idle, []
        for waiting in idle:
            if not waiting.done():
                waiting.set_result(None)

    def _run(self, requests: list[_Request]) -> None:
        """In a worker thread."""
        report = self._side.report
        try:
            for change, _ in requests:
                change()
            self._states.flush()
        except SyncFailed as error:
            report(self._failed, requests, error)
        except OSError as error:
            report(self._write_failed, requests, error)
        except Exception as error:
            report(self._failed, requests, error)
        else:
            report(self._finished, requests, None)
