"""How a node's processes share the cores with each other, and with other programs (decision 53).

A write passes between threads six times, and each time it may wait for a core that somebody else
uses. Linux lets the other one end its slice, unless the thread that wakes has asked for shorter
slices and has not used up its share. So the broker asks for short slices, and the doors get a
smaller share. Together that takes a quarter to a third off the slowest writes beside a busy HTTP
door. Either one alone takes off much less.
"""

import contextlib
import os
import struct
import sys
from typing import Final

# The least that the kernel grants.
SLICE_NS: Final = 100_000
DEFAULT_SLICE_NS: Final = 0
# About a tenth of the broker's share while both want the same core, and all of it otherwise.
DOORS_NICE: Final = 10
NICE_MAX: Final = 19

# Of sched_setattr(2), for which C libraries have no function yet.
_SYSTEM_CALLS: Final = {"x86_64": 314, "aarch64": 274}
# Size, policy, flags, nice value, priority, runtime (here the slice), deadline and period.
_ATTRIBUTES: Final = struct.Struct("=IIQiIQQQ")


def be_prompt() -> None:
    """Short slices for the thread that calls, and for those that it starts later."""
    _set_slice(0, SLICE_NS)


def stand_back(pid: int) -> None:
    """A smaller share, and the slices that others have, for a process that has just started."""
    with contextlib.suppress(OSError):
        nice = os.getpriority(os.PRIO_PROCESS, pid) + DOORS_NICE
        os.setpriority(os.PRIO_PROCESS, pid, min(nice, NICE_MAX))
    _set_slice(pid, DEFAULT_SLICE_NS)


def _set_slice(pid: int, slice_ns: int) -> None:
    """Does nothing where the kernel can't (Linux before 6.12, others) or may not."""
    if sys.platform != "linux" or sys.maxsize < 1 << 32:
        return
    number = _SYSTEM_CALLS.get(os.uname().machine)
    with contextlib.suppress(OSError):
        # Who has put a node into another class, such as that for real-time work, knows why.
        if number is None or os.sched_getscheduler(pid) != os.SCHED_OTHER:
            return
        nice = os.getpriority(os.PRIO_PROCESS, pid)
        size = _ATTRIBUTES.size
        attributes = _ATTRIBUTES.pack(size, os.SCHED_OTHER, 0, nice, 0, slice_ns, 0, 0)
        # The node has loaded it anyway.
        import ctypes

        call = ctypes.CDLL(None).syscall
        call(ctypes.c_long(number), ctypes.c_int(pid), attributes, ctypes.c_uint(0))
