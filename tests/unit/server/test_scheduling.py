"""What the kernel says of threads after the broker asked for short slices, and the doors for less.

Linux before 6.12 knows no slices that are asked for: there the call must do nothing at all.
"""

import ctypes
import os
import re
import struct
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from penstock.server.scheduling import DOORS_NICE, SLICE_NS, be_prompt, stand_back

ATTRIBUTES = struct.Struct("=IIQiIQQQ")
# Of sched_getattr(2).
SYSTEM_CALLS = {"x86_64": 315, "aarch64": 275}


def slice_ns(pid: int) -> int:
    buffer = ctypes.create_string_buffer(ATTRIBUTES.size)
    number = ctypes.c_long(SYSTEM_CALLS[os.uname().machine])
    size, flags = ctypes.c_uint(ATTRIBUTES.size), ctypes.c_uint(0)
    assert ctypes.CDLL(None).syscall(number, ctypes.c_int(pid), buffer, size, flags) == 0
    return int(ATTRIBUTES.unpack(buffer.raw)[5])


def grants_slices() -> bool:
    numbers = re.match(r"(\d+)\.(\d+)", os.uname().release)
    assert numbers is not None
    is_known = sys.platform == "linux" and os.uname().machine in SYSTEM_CALLS
    return is_known and (int(numbers[1]), int(numbers[2])) >= (6, 12)


@pytest.fixture
def child() -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
    ) as process:
        yield process
        process.communicate()


def test_a_thread_of_the_broker_inherits_short_slices() -> None:
    def started_by_one_that_is_prompt() -> int:
        be_prompt()
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(slice_ns, 0).result() if grants_slices() else SLICE_NS

    # In a thread of its own, so that the tests stay as they are.
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(started_by_one_that_is_prompt).result() == SLICE_NS


def test_the_nice_value_stays() -> None:
    with ThreadPoolExecutor(1) as pool:
        before = os.getpriority(os.PRIO_PROCESS, 0)
        pool.submit(be_prompt).result()
        assert pool.submit(os.getpriority, os.PRIO_PROCESS, 0).result() == before


def test_the_doors_get_a_smaller_share_and_slices_as_others(
    child: "subprocess.Popen[bytes]",
) -> None:
    own = os.getpriority(os.PRIO_PROCESS, 0)
    stand_back(child.pid)
    assert os.getpriority(os.PRIO_PROCESS, child.pid) == min(own + DOORS_NICE, 19)
    if grants_slices():
        assert slice_ns(child.pid) > SLICE_NS


def test_a_process_that_has_ended_is_no_trouble(child: "subprocess.Popen[bytes]") -> None:
    child.communicate()
    stand_back(child.pid)
