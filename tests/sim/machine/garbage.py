"""What Python has to look through for garbage during a run: what the run made, and seldom."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

# A run makes little garbage in circles, and looking for it costs a tenth of the run's time.
OBJECTS_BETWEEN_SEARCHES = 200_000


@contextmanager
def own_garbage_only() -> Iterator[None]:
    """What was there before the run is not looked at; what the run leaves is gone afterwards."""
    thresholds = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(OBJECTS_BETWEEN_SEARCHES, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.collect()
        gc.unfreeze()
