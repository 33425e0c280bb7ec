"""What each answer of a leader means for the batch that it is about."""

from enum import Enum, auto

from penstock.client.errors import ClientError
from penstock.client.wire.errors import name_of, place, refused
from penstock.client.wire.partition_queue import Outgoing
from penstock.protocol.kafka.error_codes import RETRIABLE, ErrorCode
from penstock.protocol.kafka.messages.produce import PartitionProduceResponse


class Verdict(Enum):
    ACKNOWLEDGED = auto()
    # Not written, or not known to be: the same again, elsewhere or later.
    AGAIN = auto()
    # The leader's books about this producer do not fit its numbers.
    MISNUMBERED = auto()
    # It may have been damaged on its way, but hardly twice.
    CORRUPT = auto()
    REFUSED = auto()


_OTHERS = {
    ErrorCode.NONE: Verdict.ACKNOWLEDGED,
    # Older than the batches whose offsets the leader remembers, but it is there.
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: Verdict.ACKNOWLEDGED,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: Verdict.MISNUMBERED,
    ErrorCode.UNKNOWN_PRODUCER_ID: Verdict.MISNUMBERED,
    ErrorCode.INVALID_PRODUCER_EPOCH: Verdict.MISNUMBERED,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: Verdict.MISNUMBERED,
    ErrorCode.CORRUPT_MESSAGE: Verdict.CORRUPT,
}
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


def verdict(code: int) -> Verdict:
    try:
        known = ErrorCode(code)
    except ValueError:
        return Verdict.REFUSED
    return _OTHERS.get(known, Verdict.AGAIN if known in RETRIABLE else Verdict.REFUSED)


def refusal(batch: Outgoing, answer: PartitionProduceResponse) -> ClientError:
    """The sentence for a batch that no leader will ever take."""
    topic = batch.partition.topic
    if answer.error_code in _TOO_LARGE:
        return ClientError(
            f"A batch of {batch.size} bytes ({batch.count} records) is too large for topic {topic}:"
            " raise its max.message.bytes, or send smaller batches."
        )
    details = [one.batch_index_error_message for one in answer.record_errors]
    detail = next(filter(None, [answer.error_message, *details]), name_of(answer.error_code))
    return refused(f"records for {place(batch.partition)}", answer.error_code, detail)
