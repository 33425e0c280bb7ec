"""What a connection holds of the memory, from its first byte to its last."""

import socket
from collections.abc import Iterator

import pytest

from penstock.net.intake import Intake
from penstock.net.memory_budget import MemoryBudget
from penstock.net.receive_buffer import BASE_CAPACITY, BUSY_CAPACITY, SharedMemory

KIB = 1024


class Feed:
    """An intake with a socket to fill it."""

    def __init__(self, budget: MemoryBudget) -> None:
        self.told = 0
        self.intake = Intake(
            frame_bytes_max=1024 * KIB,
            memory=SharedMemory(),
            budget=budget,
            on_room=self._on_room,
        )
        self.near, self.far = socket.socketpair()
        self.far.setblocking(False)

    def _on_room(self) -> None:
        self.told += 1

    def send(self, size: int) -> bool:
        """Feeds this many bytes of a frame of 1 MiB; False if the intake ran out of room."""
        while size:
            if not self.intake.has_room():
                return False
            part = min(size, 4 * KIB)
            self.near.send(bytes(part))
            size -= part
            self.receive(part)
        return True

    def receive(self, size: int) -> None:
        while size:
            if not self.intake.has_room():
                raise AssertionError("ran out of room between two bytes")
            size -= self.intake.buffer.receive(self.far)
            self.intake.buffer.settle()

    def close(self) -> None:
        self.intake.close()
        self.near.close()
        self.far.close()


@pytest.fixture
def budget() -> MemoryBudget:
    return MemoryBudget(bytes_max=128 * KIB, reserve_bytes=BASE_CAPACITY)


@pytest.fixture
def feed(budget: MemoryBudget) -> Iterator[Feed]:
    one = Feed(budget)
    yield one
    one.close()
    assert budget.used == 0


def test_small_frames_cost_nothing_of_the_budget(feed: Feed, budget: MemoryBudget) -> None:
    feed.near.send(b"\x00\x00\x00\x02hi")
    feed.receive(6)
    assert bytes(feed.intake.buffer.next_frame() or b"") == b"hi"
    assert budget.used == 0


def test_a_large_frame_is_counted_as_it_arrives(feed: Feed, budget: MemoryBudget) -> None:
    feed.near.send((1024 * KIB).to_bytes(4, "big"))
    feed.receive(4)
    assert budget.used == 0
    assert feed.send(60 * KIB)
    assert budget.used == feed.intake.buffer.capacity - BASE_CAPACITY
    assert budget.used <= 2 * 60 * KIB


def test_growth_waits_for_room_and_goes_on(feed: Feed, budget: MemoryBudget) -> None:
    other = budget.claim(lambda: None)
    other.charge(budget.bytes_max)
    assert other.grow(1), "the overdraft"
    feed.near.send((1024 * KIB).to_bytes(4, "big"))
    feed.receive(4)
    assert feed.send(BASE_CAPACITY - 4)
    assert not feed.intake.has_room()
    assert not feed.intake.use_room()
    other.close()
    assert feed.told == 1
    assert feed.intake.use_room()
    assert feed.intake.has_room()


def test_whoever_owes_answers_reads_no_more_when_memory_is_spent(
    feed: Feed, budget: MemoryBudget
) -> None:
    feed.intake.hold_call(budget.bytes_max)
    assert not feed.intake.has_room()
    feed.intake.release_calls(budget.bytes_max)
    assert feed.told == 1
    assert feed.intake.use_room()
    assert feed.intake.has_room()


def test_unread_replies_are_counted(feed: Feed, budget: MemoryBudget) -> None:
    feed.intake.count_replies(1000)
    assert budget.used == 1000
    assert feed.intake.counts_replies
    assert not feed.intake.is_overdrawn_by_replies
    feed.intake.count_replies(budget.bytes_max + 1)
    assert feed.intake.is_overdrawn_by_replies
    feed.intake.count_replies(0)
    assert budget.used == 0


def test_a_busy_buffer_grows_and_a_quiet_one_is_given_back(
    feed: Feed, budget: MemoryBudget
) -> None:
    feed.near.send(b"\x00\x00\x00\x00")
    feed.receive(4)
    assert feed.intake.buffer.next_frame() is not None
    for _ in range(10):
        feed.intake.adapt(was_full=True)
    assert BASE_CAPACITY < feed.intake.buffer.capacity <= BUSY_CAPACITY
    assert budget.used <= budget.bytes_max
    feed.intake.trim(0)
    assert feed.intake.buffer.capacity == 0
    assert budget.used == 0
