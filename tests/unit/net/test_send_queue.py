"""Sending: many buffers, large file ranges, partial sends, and every range released once."""

import os
import random
import select
import socket
from pathlib import Path

import pytest

from penstock.model.file_ranges import FileRange
from penstock.net.send_queue import TURN_BYTES_MAX, SendQueue


class PinnedFile:
    """A real file that counts its pins."""

    def __init__(self, path: Path, data: bytes) -> None:
        path.write_bytes(data)
        self._descriptor = os.open(path, os.O_RDONLY)
        self.pins = 0
        self.unpins = 0

    def fileno(self) -> int:
        return self._descriptor

    def pread(self, length: int, position: int) -> bytes:
        return os.pread(self._descriptor, length, position)

    def pin(self) -> None:
        self.pins += 1

    def unpin(self) -> None:
        self.unpins += 1

    def close(self) -> None:
        os.close(self._descriptor)


class Ends:
    """A connected pair: the queue's non-blocking end and the reader's."""

    def __init__(self) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        self.reader = socket.create_connection(listener.getsockname())
        self.writer, _ = listener.accept()
        listener.close()
        self.writer.setblocking(False)
        self.reader.settimeout(5)

    def read(self, count: int) -> bytes:
        return self.reader.recv(count)

    def close(self) -> None:
        self.reader.close()
        self.writer.close()


def pump(queue: SendQueue, ends: Ends, size: int) -> bytes:
    """Flushes and reads in turns until `size` bytes came through."""
    received = bytearray()
    while len(received) < size:
        wants_to_write = [] if queue.flush() else [ends.writer]
        readable, _, _ = select.select([ends.reader], wants_to_write, [], 5)
        if readable:
            received += ends.read(1024 * 1024)
    assert queue.flush()
    return bytes(received)


@pytest.fixture
def ends() -> object:
    pair = Ends()
    yield pair
    pair.close()


def test_many_small_buffers_arrive_in_order(ends: Ends) -> None:
    queue = SendQueue(ends.writer)
    parts = [str(number).encode() for number in range(5_000)]
    for part in parts:
        queue.push(part)
    expected = b"".join(parts)
    assert len(queue) == len(expected)
    assert pump(queue, ends, len(expected)) == expected
    assert len(queue) == 0


def test_a_part_that_is_sent_at_once_keeps_its_place(ends: Ends) -> None:
    """Whether the socket takes all of it, a part of it, or nothing, and whatever waits already."""
    ends.writer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    queue = SendQueue(ends.writer)
    parts = [b"first", *(random.Random(seed).randbytes(300_000) for seed in range(20))]
    assert queue.send(parts[0])
    assert len(queue) == 0
    outcomes = [queue.send(part) for part in parts[1:]]
    assert not outcomes[-1]
    queue.push(b"pushed")
    assert not queue.send(b"last")
    expected = b"".join([*parts, b"pushed", b"last"])
    assert pump(queue, ends, len(expected)) == expected


@pytest.mark.parametrize("can_sendfile", [True, False])
def test_large_ranges_between_headers(ends: Ends, tmp_path: Path, can_sendfile: bool) -> None:
    data = random.Random(1).randbytes(TURN_BYTES_MAX * 2 + 12_345)
    file = PinnedFile(tmp_path / "segment", data)
    queue = SendQueue(ends.writer, can_sendfile=can_sendfile)
    queue.extend([b"header", FileRange(file, 100, len(data) - 100), b"between"])
    queue.extend([FileRange(file, 0, 10), FileRange(file, 5, 0), b"", b"end"])
    expected = b"header" + data[100:] + b"between" + data[:10] + b"end"
    assert len(queue) == len(expected)
    assert pump(queue, ends, len(expected)) == expected
    assert file.pins == file.unpins == 3
    file.close()


def test_a_slow_reader_gets_all_of_it_byte_by_byte(ends: Ends) -> None:
    ends.writer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    queue = SendQueue(ends.writer)
    parts = [random.Random(2).randbytes(3_000_000), b"tail"]
    queue.extend(parts)
    assert not queue.flush()
    assert queue.memory_bytes > 0
    assert pump(queue, ends, 3_000_004) == b"".join(parts)


def test_one_flush_is_bounded(ends: Ends, tmp_path: Path) -> None:
    """A fast reader of a huge range must not hold the loop."""
    file = PinnedFile(tmp_path / "segment", bytes(TURN_BYTES_MAX * 4))
    queue = SendQueue(ends.writer)
    queue.extend([FileRange(file, 0, TURN_BYTES_MAX * 4)])
    assert not queue.flush()
    assert len(queue) >= TURN_BYTES_MAX * 2
    queue.close()
    file.close()


def test_close_releases_what_was_not_sent(ends: Ends, tmp_path: Path) -> None:
    file = PinnedFile(tmp_path / "segment", bytes(20_000_000))
    queue = SendQueue(ends.writer)
    queue.extend([FileRange(file, 0, 20_000_000), b"x", FileRange(file, 0, 5)])
    assert not queue.flush()
    queue.close()
    queue.close()
    assert file.pins == file.unpins == 2
    assert len(queue) == 0
    file.close()


@pytest.mark.parametrize("can_sendfile", [True, False])
def test_a_file_that_is_too_short_is_an_error(
    ends: Ends, tmp_path: Path, can_sendfile: bool
) -> None:
    file = PinnedFile(tmp_path / "segment", b"short")
    queue = SendQueue(ends.writer, can_sendfile=can_sendfile)
    queue.extend([FileRange(file, 0, 10)])
    with pytest.raises(OSError, match="ends before"):
        queue.flush()
    queue.close()
    assert file.pins == file.unpins
    file.close()


def test_a_reader_that_is_gone_is_an_error(ends: Ends) -> None:
    queue = SendQueue(ends.writer)
    ends.reader.close()
    queue.push(bytes(1000))
    with pytest.raises(ConnectionError):  # noqa: PT012 - the first send may still be taken
        for _ in range(1000):
            queue.push(bytes(100_000))
            queue.flush()
