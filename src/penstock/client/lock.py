"""A lock that one program of many holds at a time: `with penstock.lock("nightly") as lock: ...`.

A lock is a lease: it ends unless it is renewed, which a thread does while the lock is held. A
program that stands still for longer than its lease loses the lock, and does not notice before it
goes on. So pass `lock.fencing_token` to whatever the lock protects: it grows with each holder, and
a smaller one than before belongs to somebody who lost the lock.
"""

import asyncio
import contextlib
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final, Protocol, Self

from penstock.client.cluster_door import open_door, path_of
from penstock.client.errors import BrokerUnreachable, ClientError
from penstock.client.http_door import HttpRefused

LEASE_S: Final = 30.0
LEASE_S_MIN: Final = 1.0
# How much of a lease its holder counts on: clocks do not run equally fast.
TRUST: Final = 0.9
# A lease is renewed when this much of it is over, and again soon if that fails.
RENEWED_AFTER: Final = 1 / 3
RETRY_S: Final = 0.25
# A wait is made of questions of this length, so that a dead node does not hold it up.
QUESTION_S: Final = 5.0
ANSWER_S_MAX: Final = 10.0
# For so long nobody may answer while a lock is waited for.
UNREACHABLE_S_MAX: Final = 30.0

logger = logging.getLogger("penstock.client")


class LockHeld(ClientError):
    """Somebody else holds the lock, and held it for as long as was waited."""


class LockLost(ClientError):
    """The lease ended while its holder was at work: somebody else may have been there too."""


class Door(Protocol):
    def ask(
        self, method: str, path: str, body: Mapping[str, Any] | None, timeout_s: float, /
    ) -> Any: ...


def now_s() -> float:
    """Seconds that go on while the machine sleeps, where the system can say so."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


def new_owner() -> str:
    """Nobody else has it; it tells people who it is."""
    return f"{socket.gethostname()[:100]}:{os.getpid()}:{uuid.uuid4().hex}"


class Lock:
    """One holder of one lock. Threads that should exclude each other need one each.

    `fencing_token` grows with every holder; pass it to what the lock protects. `is_held` is false
    as soon as the lease may have ended by the clock of this machine."""

    def __init__(
        self,
        name: str,
        *,
        bootstrap: str = "",
        http: str = "",
        lease_s: float = LEASE_S,
        wait_s: float | None = None,
        owner: str | None = None,
        on_lost: Callable[[], object] | None = None,
        door: Door | None = None,
    ) -> None:
        """`wait_s` is how long `with` waits for the lock, without a limit if it is None. `on_lost`
        is called by another thread as soon as it is known that the lock is lost. `bootstrap` is
        where the cluster is, as for a Producer; or `http` names addresses of its HTTP doors."""
        if lease_s < LEASE_S_MIN:
            raise ClientError(f"A lease must be at least {LEASE_S_MIN:g} s, not {lease_s:g} s.")
        self.name = name
        self.owner = owner or new_owner()
        self.lease_s = lease_s
        self._wait_s = wait_s
        self._on_lost = on_lost
        self._door = door or open_door(bootstrap=bootstrap, http=http, is_repeatable=True)
        self._path = path_of("locks", name)
        self._token: int | None = None
        # Until then the lock is ours, by our clock; moved by the thread that renews.
        self._trusted_until = 0.0
        self._is_lost = False
        self._is_given_up = False
        self._stop = threading.Event()
        self._renewing: threading.Thread | None = None

    # What holders want to know

    @property
    def fencing_token(self) -> int:
        """Grows with every holder of the lock."""
        if self._token is None:
            raise ClientError(f"The lock {self.name} was not acquired.")
        return self._token

    @property
    def is_held(self) -> bool:
        """False as soon as the lease may have ended. True is no promise for the next moment."""
        return self._renewing is not None and not self._is_lost and now_s() < self._trusted_until

    # Taking and giving

    def acquire(self, wait_s: float | None = None) -> None:
        """Waits `wait_s`, or without a limit; raises LockHeld."""
        if self._renewing is not None:
            raise ClientError(f"The lock {self.name} is held by this object already.")
        deadline = None if wait_s is None else now_s() + wait_s
        answered_at = now_s()
        while True:
            asked_at = now_s()
            left_s = QUESTION_S if deadline is None else max(0.0, deadline - asked_at)
            try:
                found = self._ask_for(min(left_s, QUESTION_S))
            except HttpRefused as refused:
                self._raise_unless_passing(refused, deadline)
                answered_at = now_s()
                continue
            except BrokerUnreachable:
                is_long = now_s() - answered_at > UNREACHABLE_S_MAX
                if is_long or self._is_given_up or _is_over(deadline):
                    raise
                time.sleep(RETRY_S)
                continue
            self._begin(int(found["fencing_token"]), asked_at)
            return

    def _ask_for(self, wait_s: float) -> Any:
        body = {
            "owner": self.owner,
            "lease_ms": int(self.lease_s * 1000),
            "wait_ms": int(wait_s * 1000),
        }
        return self._door.ask("POST", f"{self._path}/acquire", body, wait_s + ANSWER_S_MAX)

    def _raise_unless_passing(self, refused: HttpRefused, deadline: float | None) -> None:
        if self._is_given_up or (refused.reason == "lock_held" and _is_over(deadline)):
            raise LockHeld(str(refused)) from None
        if refused.reason == "lock_held":
            return
        if not refused.is_passing or _is_over(deadline):
            raise refused
        time.sleep(RETRY_S)

    def _begin(self, token: int, asked_at: float) -> None:
        self._token = token
        self._is_lost = False
        self._trusted_until = asked_at + TRUST * self.lease_s
        self._stop.clear()
        name = f"penstock-lock-{self.name}"
        self._renewing = threading.Thread(target=self._renew_until_stopped, name=name, daemon=True)
        self._renewing.start()
        if self._is_given_up:
            self.release()

    def release(self) -> None:
        """Gives the lock back; raises LockLost if it was lost before."""
        if self._renewing is None:
            raise ClientError(f"The lock {self.name} is not held by this object.")
        was_held = self.is_held
        self._stop.set()
        self._renewing.join()
        self._renewing = None
        was_lost_before = self._give_back()
        if not was_held or was_lost_before:
            raise LockLost(
                f"The lock {self.name} with token {self._token} was lost while it was in use."
            )

    def _give_back(self) -> bool:
        """Whether the door knew for sure that somebody else may have had it."""
        body = {"owner": self.owner, "fencing_token": self._token}
        is_repeated = False
        while True:
            try:
                self._door.ask("POST", f"{self._path}/release", body, ANSWER_S_MAX)
                return False
            except HttpRefused as refused:
                if refused.reason == "lock_not_held":
                    # An earlier request may have done it, and its answer got lost.
                    return not is_repeated
                if not refused.is_passing:
                    raise
            except BrokerUnreachable:
                pass
            if now_s() >= self._trusted_until:
                logger.warning("the lock %s is not given back, but its lease ended", self.name)
                return False
            is_repeated = True
            time.sleep(RETRY_S)

    def give_up(self) -> None:
        """Whoever waits in `acquire` need not wait any more."""
        self._is_given_up = True

    # Renewing

    def _renew_until_stopped(self) -> None:
        pause_s = self.lease_s * RENEWED_AFTER
        while not self._stop.wait(pause_s):
            pause_s = self.lease_s * RENEWED_AFTER if self._renew() else RETRY_S
            if self._is_lost or now_s() >= self._trusted_until:
                self._lose()
                return

    def _renew(self) -> bool:
        asked_at = now_s()
        left_s = max(RETRY_S, min(self._trusted_until - asked_at, ANSWER_S_MAX))
        body = {"owner": self.owner, "fencing_token": self._token}
        try:
            self._door.ask("POST", f"{self._path}/renew", body, left_s)
        except HttpRefused as refused:
            self._is_lost = refused.reason == "lock_not_held"
            return False
        except BrokerUnreachable:
            return False
        self._trusted_until = asked_at + TRUST * self.lease_s
        return True

    def _lose(self) -> None:
        self._is_lost = True
        logger.warning("the lock %s with token %s is lost", self.name, self._token)
        if self._on_lost is not None:
            self._on_lost()

    # As a context

    def __enter__(self) -> Self:
        self.acquire(self._wait_s)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.release()
        except ClientError as lost:
            if error is None:
                raise
            # What the block raised says more, and must not be hidden.
            error.add_note(str(lost))


class AsyncLock:
    """The same for asyncio. Leases are renewed by a thread, so a busy loop does not lose them."""

    def __init__(self, name: str, **options: Any) -> None:
        """With the options of `Lock`."""
        self._user_on_lost = options.pop("on_lost", None)
        self._wait_s: float | None = options.pop("wait_s", None)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lost = asyncio.Event()
        self._lock = Lock(name, on_lost=self._on_lost, **options)

    @property
    def name(self) -> str:
        return self._lock.name

    @property
    def owner(self) -> str:
        return self._lock.owner

    @property
    def fencing_token(self) -> int:
        return self._lock.fencing_token

    @property
    def is_held(self) -> bool:
        return self._lock.is_held

    async def lost(self) -> None:
        """Returns when it is known that the lock is lost."""
        await self._lost.wait()

    async def acquire(self, wait_s: float | None = None) -> None:
        """As that of Lock; one that is cancelled leaves nothing held."""
        self._loop = asyncio.get_running_loop()
        self._lost.clear()
        acquiring = asyncio.ensure_future(asyncio.to_thread(self._lock.acquire, wait_s))
        try:
            await asyncio.shield(acquiring)
        except asyncio.CancelledError:
            # The thread ends its question first. If that brings the lock, it gives it back.
            self._lock.give_up()
            acquiring.add_done_callback(_forget)
            raise

    async def release(self) -> None:
        """As that of Lock."""
        await asyncio.to_thread(self._lock.release)

    def _on_lost(self) -> None:
        """In the thread that renews."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._lost.set)
        if self._user_on_lost is not None:
            self._user_on_lost()

    async def __aenter__(self) -> Self:
        await self.acquire(self._wait_s)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self.release()
        except ClientError as lost:
            if error is None:
                raise
            error.add_note(str(lost))


def lock(
    name: str,
    *,
    bootstrap: str = "",
    http: str = "",
    lease_s: float = LEASE_S,
    wait_s: float | None = None,
    on_lost: Callable[[], object] | None = None,
) -> Lock:
    """`with penstock.lock("nightly") as held:` runs the block while nobody else has the lock.

    Raises LockHeld if it can't be had within `wait_s`, and LockLost at the end of the block if the
    lease ended before."""
    return Lock(
        name, bootstrap=bootstrap, http=http, lease_s=lease_s, wait_s=wait_s, on_lost=on_lost
    )


def alock(
    name: str,
    *,
    bootstrap: str = "",
    http: str = "",
    lease_s: float = LEASE_S,
    wait_s: float | None = None,
    on_lost: Callable[[], object] | None = None,
) -> AsyncLock:
    """`async with penstock.alock("nightly") as held:`, as `lock`."""
    return AsyncLock(
        name, bootstrap=bootstrap, http=http, lease_s=lease_s, wait_s=wait_s, on_lost=on_lost
    )


def list_locks(door: Door, timeout_s: float) -> list[dict[str, Any]]:
    """Those that somebody holds, by name."""
    found: list[dict[str, Any]] = door.ask("GET", path_of("locks"), None, timeout_s)["locks"]
    return found


def describe_lock(door: Door, name: str, timeout_s: float) -> dict[str, Any]:
    """Raises HttpRefused if nobody holds it."""
    found: dict[str, Any] = door.ask("GET", path_of("locks", name), None, timeout_s)
    return found


def _is_over(deadline: float | None) -> bool:
    return deadline is not None and now_s() >= deadline


def _forget(done: "asyncio.Future[None]") -> None:
    if not done.cancelled():
        done.exception()
