"""What a queue that is led asks of the rest of its node."""

from collections.abc import Callable
from typing import Protocol

from penstock.queues.decisions import Open, Write
from penstock.queues.records import QueueStored
from penstock.replication.commit import Commit
from penstock.replication.watches import Watch


class QueueStore(Protocol):
    """The share coordinators, wherever they are."""

    async def open(self, command: Open, /) -> QueueStored: ...

    async def write(self, command: Write, /) -> None: ...

    def write_here(self, command: Write, /) -> Commit | None:
        """The same at once, if the coordinator is on this node: settled once it is stored. None if
        it did nothing, and `write` has to be asked."""
        ...


class DataLog(Protocol):
    """What is asked of the replica of the data partition."""

    @property
    def term(self) -> int: ...
    @property
    def is_leader(self) -> bool: ...
    @property
    def is_settled(self) -> bool: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...

    def check_leader(self) -> None: ...
    async def confirm(self) -> None: ...
    def on_advance(self, callback: Callable[[], None], /) -> Watch: ...
    def on_leadership(self, callback: Callable[[], None], /) -> Watch: ...
