"""A read to the end of something, shared by all who ask for it at once."""

import asyncio
from collections.abc import Awaitable, Callable


class SharedRead:
    """A read that is under way may have begun before the last write, so it does not do for those
    who ask now; but all who come while it lasts share the next one."""

    def __init__(self, read: Callable[[], Awaitable[None]]) -> None:
        self._read = read
        self._under_way: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    async def wait(self) -> None:
        """Returns when a read that began after this call has ended; raises what it raised."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._after(self._under_way))
            # Those who wait may all have gone when it fails.
            self._next.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.shield(self._next)

    async def _after(self, under_way: "asyncio.Task[None] | None") -> None:
        if under_way is not None:
            await asyncio.wait([under_way])
        self._under_way, self._next = self._next, None
        await self._read()
