"""A holder of a lock: what it asks for, when it counts itself as the holder, how it learns of a
loss. Time passes when a test says so; the thread that renews is not waited for but called."""

import asyncio
import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from penstock.client import lock as module
from penstock.client.errors import BrokerUnreachable, ClientError
from penstock.client.http_door import HttpDoor, HttpRefused
from penstock.client.lock import TRUST, AsyncLock, Lock, LockHeld, LockLost

LEASE_S = 9.0


class FakeDoor:
    """Holds one lock; answers may be lost or refused."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Mapping[str, Any]]] = []
        self.token = 0
        self.owner: str | None = None
        # What happens to the next questions, by what is asked for: None answers.
        self.faults: list[Exception | None] = []
        # Done, but without an answer.
        self.is_answer_lost = False

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None, timeout_s: float) -> Any:
        assert body is not None
        action = path.rpartition("/")[2]
        self.asked.append((action, body))
        fault = self.faults.pop(0) if self.faults else None
        if fault is not None:
            raise fault
        answer = getattr(self, action)(body)
        if self.is_answer_lost:
            self.is_answer_lost = False
            raise BrokerUnreachable("the answer is lost")
        return answer

    def acquire(self, body: Mapping[str, Any]) -> Any:
        if self.owner not in (None, body["owner"]):
            raise HttpRefused("somebody has it", status=409, reason="lock_held")
        self.token += self.owner is None
        self.owner = body["owner"]
        return {"fencing_token": self.token}

    def renew(self, body: Mapping[str, Any]) -> Any:
        if (self.owner, self.token) != (body["owner"], body["fencing_token"]):
            raise HttpRefused("it is not yours", status=409, reason="lock_not_held")
        return {}

    def release(self, body: Mapping[str, Any]) -> None:
        self.renew(body)
        self.owner = None


@pytest.fixture
def door() -> FakeDoor:
    return FakeDoor()


class Time:
    def __init__(self) -> None:
        self.s = 100.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()

    def sleep(seconds: float) -> None:
        time.s += seconds

    monkeypatch.setattr(module, "now_s", lambda: time.s)
    monkeypatch.setattr(module.time, "sleep", sleep)
    return time


def make(door: FakeDoor, **options: Any) -> Lock:
    return Lock("a", door=door, lease_s=LEASE_S, **options)


def test_a_lock_is_held_from_the_answer_until_the_end_of_its_lease(
    door: FakeDoor, clock: Time
) -> None:
    lock = make(door)
    with pytest.raises(ClientError, match="was not acquired"):
        assert lock.fencing_token
    lock.acquire()
    assert (lock.fencing_token, lock.is_held) == (1, True)
    clock.s += TRUST * LEASE_S - 0.1
    assert lock.is_held
    clock.s += 0.2
    assert not lock.is_held
    with pytest.raises(LockLost):
        lock.release()
    assert door.owner is None


def test_a_renewal_counts_from_before_it_was_asked_for(door: FakeDoor, clock: Time) -> None:
    lock = make(door)
    lock.acquire()
    clock.s += 5
    assert lock._renew()
    clock.s += 5
    assert lock.is_held
    lock.release()
    assert not lock.is_held
    assert [action for action, _ in door.asked] == ["acquire", "renew", "release"]


def test_a_holder_hears_that_the_lock_is_lost(door: FakeDoor, clock: Time) -> None:
    lost: list[bool] = []
    lock = make(door, on_lost=lambda: lost.append(True))
    lock.acquire()
    door.token += 1
    assert not lock._renew()
    assert not lock.is_held
    lock._lose()
    assert lost == [True]
    with pytest.raises(LockLost, match="token 1"):
        lock.release()


def test_the_thread_renews_and_ends_with_a_loss(
    door: FakeDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RENEWED_AFTER", 0.001)
    lost = threading.Event()
    lock = make(door, on_lost=lost.set)
    lock.acquire()
    while len(door.asked) < 3:
        pass
    door.owner = None
    assert lost.wait(30)
    assert not lock.is_held


def test_no_answer_for_a_whole_lease_is_a_loss(door: FakeDoor, clock: Time) -> None:
    lock = make(door)
    lock.acquire()
    door.faults = [BrokerUnreachable("nobody there")]
    assert not lock._renew()
    assert lock.is_held
    clock.s += LEASE_S
    assert not lock.is_held


def test_an_answer_that_is_lost_is_asked_for_again(door: FakeDoor, clock: Time) -> None:
    lock = make(door)
    door.is_answer_lost = True
    lock.acquire()
    assert (lock.fencing_token, door.token) == (1, 1)
    door.is_answer_lost = True
    lock.release()
    assert door.owner is None


def test_a_lock_that_others_hold_is_waited_for(door: FakeDoor, clock: Time) -> None:
    door.owner = "somebody"
    with pytest.raises(LockHeld, match="somebody has it"):
        make(door).acquire(0)
    held = HttpRefused("somebody has it", status=409, reason="lock_held")
    door.owner, door.faults = None, [held, held]
    lock = make(door)
    lock.acquire()
    waits = [body["wait_ms"] for action, body in door.asked if action == "acquire"]
    assert waits == [0, 5_000, 5_000, 5_000]
    lock.release()


def test_what_passes_is_tried_again_and_what_does_not_is_reported(
    door: FakeDoor, clock: Time
) -> None:
    busy = HttpRefused("no controller", status=503, reason="not_controller")
    door.faults = [busy, busy]
    lock = make(door)
    lock.acquire()
    lock.release()
    bad = HttpRefused("no such name", status=400, reason="invalid_request")
    door.faults = [bad]
    with pytest.raises(HttpRefused, match="no such name"):
        make(door).acquire()
    door.faults = [BrokerUnreachable("nobody there")] * 1000
    with pytest.raises(BrokerUnreachable):
        make(door).acquire()
    assert clock.s < 200


def test_the_block_s_own_error_is_not_hidden(door: FakeDoor, clock: Time) -> None:
    def work() -> None:
        with make(door):
            door.owner = None
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine") as caught:
        work()
    assert "was lost" in caught.value.__notes__[0]


def test_wrong_use_is_refused(door: FakeDoor, clock: Time) -> None:
    with pytest.raises(ClientError, match="at least 1 s"):
        Lock("a", door=door, lease_s=0.5)
    lock = make(door)
    with pytest.raises(ClientError, match="is not held"):
        lock.release()
    lock.acquire()
    with pytest.raises(ClientError, match="already"):
        lock.acquire()
    lock.release()
    with pytest.raises(ClientError, match="not HOST:PORT"):
        Lock("a", http="nowhere")


async def test_the_same_for_asyncio(door: FakeDoor) -> None:
    async with AsyncLock("a", door=door, lease_s=LEASE_S) as lock:
        assert (lock.name, lock.is_held, lock.fencing_token) == ("a", True, 1)
        assert lock.owner == door.owner
        door.owner = None
        lock._lock._renew()
        lock._lock._lose()
        await lock.lost()
        door.owner = lock.owner
        with pytest.raises(LockLost):
            await lock.release()
        await lock.acquire()
    assert door.owner is None


async def test_nobody_keeps_a_lock_after_it_was_cancelled(door: FakeDoor) -> None:
    gate = threading.Event()
    take: Callable[[Mapping[str, Any]], Any] = door.acquire

    def later(body: Mapping[str, Any]) -> Any:
        assert gate.wait(30)
        return take(body)

    door.acquire = later  # type: ignore[method-assign]
    lock = AsyncLock("a", door=door, lease_s=LEASE_S)
    acquiring = asyncio.ensure_future(lock.acquire())
    while not door.asked:
        await asyncio.sleep(0)
    acquiring.cancel()
    with pytest.raises(asyncio.CancelledError):
        await acquiring
    gate.set()
    while "release" not in [action for action, _ in door.asked]:
        await asyncio.sleep(0.001)
    await asyncio.get_running_loop().shutdown_default_executor()
    assert door.owner is None


def test_a_door_that_nobody_opens_is_named() -> None:
    door = HttpDoor.at("127.0.0.1:1,127.0.0.1:2", is_repeatable=True)
    with pytest.raises(BrokerUnreachable, match=r"127\.0\.0\.1:1,127\.0\.0\.1:2: connection ref"):
        door.ask("GET", "/", None, 5.0)
