"""That this process is to end, for those who wait for something else meanwhile."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class Stopping:
    """Each of those who wait has a future of its own. Thousands may wait, and a future that all of
    them shared would look through all of them whenever one is done with waiting."""

    def __init__(self) -> None:
        self._is_set = False
        self._waiting: set[asyncio.Future[None]] = set()

    def done(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        for each in self._waiting:
            if not each.done():
                each.set_result(None)

    @contextmanager
    def watched(self) -> Iterator["asyncio.Future[None]"]:
        """Done when the process is to end."""
        own: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._is_set:
            own.set_result(None)
        self._waiting.add(own)
        try:
            yield own
        finally:
            self._waiting.discard(own)
            own.cancel()
