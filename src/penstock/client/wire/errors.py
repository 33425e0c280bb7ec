"""What the wire client tells its user, each in one sentence."""

from penstock.client.errors import ClientError, TopicNotFound
from penstock.model.ids import TopicPartition
from penstock.protocol.kafka.error_codes import ErrorCode


class UnknownTopic(TopicNotFound):
    """A topic, or a partition of it, that the cluster does not have, or has no more."""

    def __init__(self, sentence: str, *, topic: str = "") -> None:
        super().__init__(sentence)
        self.topic = topic


class OffsetOutOfRange(ClientError):
    """What was asked for is not in the log: deleted already, or never written."""

    def __init__(self, partition: TopicPartition, offset: int, log_start: int, log_end: int):
        super().__init__(
            f"Offset {offset} of partition {partition.partition} of topic {partition.topic} is out"
            f" of range: the log holds offsets from {log_start} up to {log_end}."
        )
        self.partition = partition
        self.offset = offset
        self.log_start = log_start
        self.log_end = log_end


class GaveUp(ClientError):
    """Nothing got better for as long as the settings allow."""


class Malformed(ClientError):
    """The peer's bytes are not what they claim to be, or the peer is not a broker."""


def name_of(code: int) -> str:
    """An error code in words, to stand inside a sentence."""
    try:
        return ErrorCode(code).name.lower().replace("_", " ")
    except ValueError:
        return f"error {code}"


def place(partition: TopicPartition) -> str:
    return f"partition {partition.partition} of topic {partition.topic}"


def refused(what: str, code: int, detail: str | None = None) -> ClientError:
    reason = (detail or name_of(code)).rstrip(".")
    return ClientError(f"The broker refused {what}: {reason}.")
