"""Settings of share groups that Kafka does not have: retries with a backoff, delays, expiry, order
per key, pauses, and limits of what consumers may have at a time.

They have our own prefix, so that they never meet a name that Kafka gives away later. All of them
are off until a group sets them.
"""

from collections.abc import Mapping
from typing import Final

from penstock.cluster.settings import BadValue, Check, ConfigType, Setting, at_least, between

PREFIX: Final = "penstock.queue."
RETRY_BACKOFF_MS: Final = f"{PREFIX}retry.backoff.ms"
RETRY_BACKOFF_MAX_MS: Final = f"{PREFIX}retry.backoff.max.ms"
RETRY_BACKOFF_JITTER_PERCENT: Final = f"{PREFIX}retry.backoff.jitter.percent"
DELAY_ENABLE: Final = f"{PREFIX}delay.enable"
KEY_ORDER_ENABLE: Final = f"{PREFIX}key.order.enable"
CONSUMER_MAX_RECORD_LOCKS: Final = f"{PREFIX}consumer.max.record.locks"
GROUP_MAX_RECORD_LOCKS: Final = f"{PREFIX}group.max.record.locks"
EXPIRY_ENABLE: Final = f"{PREFIX}expiry.enable"
EXPIRY_MS: Final = f"{PREFIX}expiry.ms"
EXPIRY_DEAD_LETTERS_ENABLE: Final = f"{PREFIX}expiry.dead.letters.enable"
PAUSED_TOPICS: Final = f"{PREFIX}paused.topics"

# A record that is given back waits for a day at most.
BACKOFF_MS_MAX: Final = 24 * 3_600_000
_BACKOFF_MAX_MS_DEFAULT: Final = 60_000
_JITTER_PERCENT_DEFAULT: Final = 20


def _setting(
    name: str, kind: ConfigType, default: str | int, documentation: str, check: Check | None = None
) -> Setting:
    return Setting(name, kind, str(default), documentation, check)


QUEUE_SETTINGS: Final = (
    _setting(
        RETRY_BACKOFF_MS,
        ConfigType.INT,
        0,
        "How long a record waits after a member gave it back for the first time. The wait doubles "
        "with every further attempt. 0: it can be delivered again at once.",
        between(0, BACKOFF_MS_MAX),
    ),
    _setting(
        RETRY_BACKOFF_MAX_MS,
        ConfigType.INT,
        _BACKOFF_MAX_MS_DEFAULT,
        "The longest wait of a record that a member gave back.",
        between(1, BACKOFF_MS_MAX),
    ),
    _setting(
        RETRY_BACKOFF_JITTER_PERCENT,
        ConfigType.INT,
        _JITTER_PERCENT_DEFAULT,
        "How far a wait may differ from the exact one, up or down, by chance: so what failed "
        "together is not tried again together.",
        between(0, 100),
    ),
    _setting(
        DELAY_ENABLE,
        ConfigType.BOOLEAN,
        "false",
        "Whether producers can have records delivered later, by the headers penstock.deliver.at "
        "and penstock.deliver.after. The broker then looks into every record.",
    ),
    _setting(
        KEY_ORDER_ENABLE,
        ConfigType.BOOLEAN,
        "false",
        "Whether a record waits until all earlier ones of its key in its partition are done. "
        "Records without a key have no order. The broker then looks into every record.",
    ),
    _setting(
        CONSUMER_MAX_RECORD_LOCKS,
        ConfigType.INT,
        0,
        "The most records that one member may have at a time of all partitions that a broker "
        "leads. 0: as many as the partitions allow.",
        at_least(0),
    ),
    _setting(
        GROUP_MAX_RECORD_LOCKS,
        ConfigType.INT,
        0,
        "The most records that all members of the group together may have at a time of all "
        "partitions that a broker leads. 0: as many as the partitions allow.",
        at_least(0),
    ),
    _setting(
        EXPIRY_ENABLE,
        ConfigType.BOOLEAN,
        "false",
        "Whether records expire: by the header penstock.expire.after, or else after "
        "penstock.queue.expiry.ms. One that is too old when it would be delivered is given up. The "
        "broker then looks into every record.",
    ),
    _setting(
        EXPIRY_MS,
        ConfigType.LONG,
        0,
        "How long after their timestamp records expire that do not say so themselves. 0: never.",
        between(0, 2**53),
    ),
    _setting(
        EXPIRY_DEAD_LETTERS_ENABLE,
        ConfigType.BOOLEAN,
        "false",
        "Whether expired records go to the dead-letter topic, if the group has one.",
    ),
    _setting(
        PAUSED_TOPICS,
        ConfigType.LIST,
        "",
        "The topics of which nothing is delivered to the group for now. Polls find them empty, and "
        "what is leased can be acknowledged.",
    ),
)


def check_backoff(configs: Mapping[str, str]) -> None:
    """Raises BadValue if a first wait is longer than the longest."""
    first_ms = int(configs.get(RETRY_BACKOFF_MS, 0))
    max_ms = int(configs.get(RETRY_BACKOFF_MAX_MS, _BACKOFF_MAX_MS_DEFAULT))
    if first_ms > max_ms:
        raise BadValue(
            f"{RETRY_BACKOFF_MAX_MS} must be greater than or equal to {RETRY_BACKOFF_MS}: "
            f"{max_ms} is less than {first_ms}"
        )
