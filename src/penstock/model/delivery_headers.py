"""Headers of records by which producers say when a queue shall deliver them, or not any more.

`penstock.deliver.at` is a time: milliseconds since 1970, or RFC 3339 with an offset.
`penstock.deliver.after` is a duration from the record's own timestamp: milliseconds, or ISO 8601 as
in PT90S. If a record has both, the first counts. `penstock.expire.after` is a duration, too: queues
give up a record that is older.
"""

from datetime import datetime
from typing import Final

DELIVER_AT: Final = "penstock.deliver.at"
DELIVER_AFTER: Final = "penstock.deliver.after"
EXPIRE_AFTER: Final = "penstock.expire.after"
# What is further away is delivered then.
DELAY_MS_MAX: Final = 30 * 24 * 3_600_000


def moment_ms(text: str) -> int | None:
    """Milliseconds since 1970 of a time as in RFC 3339; None for what is not one."""
    try:
        moment = datetime.fromisoformat(text)
        # Without an offset nobody knows which moment is meant.
        return None if moment.tzinfo is None else int(moment.timestamp() * 1000)
    except (ValueError, OverflowError):
        return None
