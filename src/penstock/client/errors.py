"""What can go wrong between a client and a broker, each in one sentence."""

from typing import TYPE_CHECKING

from penstock.model.errors import Explained

if TYPE_CHECKING:
    from confluent_kafka import KafkaError


class ClientError(Explained):
    """The broker or the way to it refused; the text is one sentence for the user."""


class BrokerUnreachable(ClientError):
    """Nobody answers at the bootstrap address."""


class ControllerNotReached(BrokerUnreachable):
    """The client library never found its way to the controller, so nothing was sent."""


class TopicNotFound(ClientError):
    """There is no such topic, or no such partition of it."""


class TopicExists(ClientError):
    """A topic of that name is there already."""


class GroupNotFound(ClientError):
    """There is no such group."""


class GroupActive(ClientError):
    """The group has members, so its offsets belong to them and can't be changed from outside."""


class DeliveryFailed(ClientError):
    """Records that a producer gave up on."""


class CommitFailed(ClientError):
    """What a consumer has processed could not be stored: others may read it again."""


def no_answer(bootstrap: str, reason: str) -> BrokerUnreachable:
    # Elsewhere a broker is meant that somebody else runs, or runs in another way.
    hint = " Start one with `penstock up`." if bootstrap.strip() in _WHERE_UP_LISTENS else ""
    return BrokerUnreachable(f"No broker answers at {bootstrap}: {reason}.{hint}")


def from_kafka(error: "KafkaError", *, what: str, bootstrap: str) -> ClientError:
    """The typed error for librdkafka's; `what` names the thing, as in "topic orders"."""
    name = error.name()
    if name in _UNREACHABLE:
        reason = reason_of(error)
        sentence = str(no_answer(bootstrap, reason))
        kind = ControllerNotReached if _NEVER_SENT in reason else BrokerUnreachable
        return kind(sentence)
    typed, sentence = _SENTENCES.get(name, (ClientError, ""))
    if sentence:
        return typed(_capitalised(sentence.format(what=what)))
    return ClientError(f"The broker refused {what}: {reason_of(error)}.")


def reason_of(error: "KafkaError") -> str:
    """librdkafka's reason without its prefixes and its full stop, to stand inside a sentence."""
    text = " ".join((error.str() or error.name()).split())
    for prefix in ("Broker: ", "Local: "):
        text = text.removeprefix(prefix)
    return text.rstrip(".")


def _capitalised(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


# Where `penstock up` listens without any setting.
_WHERE_UP_LISTENS = ("127.0.0.1:9092", "localhost:9092")
_NEVER_SENT = "waiting for controller"
_UNREACHABLE = frozenset(
    {"_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_TIMED_OUT_QUEUE", "_RESOLVE"}
)
_TOPIC_MISSING = (TopicNotFound, "{what} does not exist.")
_GROUP_MISSING = (GroupNotFound, "{what} does not exist.")
_GROUP_ACTIVE = (GroupActive, "{what} has active members: stop its consumers first.")
_SENTENCES: dict[str, tuple[type[ClientError], str]] = {
    "UNKNOWN_TOPIC_OR_PART": _TOPIC_MISSING,
    "UNKNOWN_TOPIC_ID": _TOPIC_MISSING,
    "_UNKNOWN_TOPIC": _TOPIC_MISSING,
    "_UNKNOWN_PARTITION": (TopicNotFound, "{what} has no such partition."),
    "TOPIC_ALREADY_EXISTS": (TopicExists, "{what} already exists."),
    "GROUP_ID_NOT_FOUND": _GROUP_MISSING,
    "_UNKNOWN_GROUP": _GROUP_MISSING,
    "NON_EMPTY_GROUP": _GROUP_ACTIVE,
    "UNKNOWN_MEMBER_ID": _GROUP_ACTIVE,
    "ILLEGAL_GENERATION": _GROUP_ACTIVE,
    "GROUP_SUBSCRIBED_TO_TOPIC": _GROUP_ACTIVE,
    "_MAX_POLL_EXCEEDED": (
        ClientError,
        "{what} took this consumer's partitions away: it did not ask for records for longer than "
        "max.poll.interval.ms.",
    ),
}
