"""Callbacks that wait for a high watermark to move: what a long poll leaves behind."""

from collections.abc import Callable

from penstock.replication.commit import report_bug


class Watch:
    """One callback; cancelled when nobody waits any more."""

    __slots__ = ("_watches", "callback")

    def __init__(self, watches: dict["Watch", None], callback: Callable[[], None]) -> None:
        self._watches = watches
        self.callback = callback

    def cancel(self) -> None:
        self._watches.pop(self, None)


class Watches:
    """All callbacks of one replica, in the order in which they came."""

    __slots__ = ("_watches",)

    def __init__(self) -> None:
        self._watches: dict[Watch, None] = {}

    def __len__(self) -> int:
        return len(self._watches)

    def add(self, callback: Callable[[], None]) -> Watch:
        watch = Watch(self._watches, callback)
        self._watches[watch] = None
        return watch

    def notify(self) -> None:
        if not self._watches:
            return
        # A callback may cancel its watch, or others.
        for watch in list(self._watches):
            try:
                watch.callback()
            except Exception as bug:
                report_bug("a watch of a high watermark failed", bug)
