"""Bounds that every door has alike; each door's own are beside it, and its reference page lists
both."""

from typing import Final

# Of one request that writes.
RECORDS_PER_REQUEST_MAX: Final = 100_000
IDEMPOTENCY_KEY_LENGTH_MAX: Final = 255
# Of one that reads, or waits.
WAIT_S_MAX: Final = 30.0
# Streams that are open at a time in the process.
STREAMS_MAX: Final = 2_000
