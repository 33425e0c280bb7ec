"""The one table from the broker's reasons to Kafka's error codes, and what only Kafka refuses."""

from penstock.model.errors import Reason, Refused
from penstock.protocol.kafka.error_codes import ErrorCode

# Most reasons have their name from Kafka; those that differ are spelled out.
_RENAMED = {
    Reason.THROTTLED: ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    Reason.INVALID_TOPIC: ErrorCode.INVALID_TOPIC_EXCEPTION,
    Reason.STORAGE_ERROR: ErrorCode.KAFKA_STORAGE_ERROR,
    # No request of Kafka's names the offset that it expects.
    Reason.OFFSET_NOT_EXPECTED: ErrorCode.INVALID_UPDATE_VERSION,
    # Clients take a failed authorisation of the transactional id as fatal, so a transactional
    # producer ends with a clear error instead of retrying forever.
    Reason.TRANSACTIONAL_ID_REFUSED: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
# What Kafka's protocol has no request for.
OF_OTHER_DOORS = frozenset({Reason.LOCK_HELD, Reason.LOCK_NOT_HELD})

ERROR_CODES: dict[Reason, ErrorCode] = {
    reason: _RENAMED.get(reason) or ErrorCode[reason.name]
    for reason in Reason
    if reason not in OF_OTHER_DOORS
}


class RefusedWith(Refused):
    """A request that breaks the protocol's own rules, for which the broker has no word."""

    def __init__(self, code: ErrorCode, detail: str = "") -> None:
        super().__init__(Reason.INVALID_REQUEST, detail)
        self.code = code


def error_code(refused: Refused) -> ErrorCode:
    return refused.code if isinstance(refused, RefusedWith) else ERROR_CODES[refused.reason]
