"""What Python has to look through for garbage during a run: what the run made, and no more."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def own_garbage_only() -> Iterator[None]:
    """What was there before the run is not looked at, so that what the run made is, more often;
    and what it leaves is gone afterwards."""
    gc.freeze()
    try:
        yield
    finally:
        gc.collect()
        gc.unfreeze()
