"""Why the broker refuses something, in the model's words; each door maps it to its own codes."""

from enum import Enum, auto


class Reason(Enum):
    """Every expected way in which a request can be refused."""

    # Requests
    INVALID_REQUEST = auto()
    UNSUPPORTED_VERSION = auto()
    REQUEST_TIMED_OUT = auto()
    THROTTLED = auto()
    NOT_CONTROLLER = auto()
    # Topics and partitions
    UNKNOWN_TOPIC_OR_PARTITION = auto()
    UNKNOWN_TOPIC_ID = auto()
    INCONSISTENT_TOPIC_ID = auto()
    TOPIC_ALREADY_EXISTS = auto()
    INVALID_TOPIC = auto()
    INVALID_PARTITIONS = auto()
    INVALID_REPLICATION_FACTOR = auto()
    INVALID_REPLICA_ASSIGNMENT = auto()
    INVALID_CONFIG = auto()
    POLICY_VIOLATION = auto()
    TOPIC_DELETION_DISABLED = auto()
    # Leadership
    NOT_LEADER_OR_FOLLOWER = auto()
    LEADER_NOT_AVAILABLE = auto()
    FENCED_LEADER_EPOCH = auto()
    UNKNOWN_LEADER_EPOCH = auto()
    NOT_ENOUGH_REPLICAS = auto()
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = auto()
    OFFSET_NOT_AVAILABLE = auto()
    PREFERRED_LEADER_NOT_AVAILABLE = auto()
    ELIGIBLE_LEADERS_NOT_AVAILABLE = auto()
    ELECTION_NOT_NEEDED = auto()
    NO_REASSIGNMENT_IN_PROGRESS = auto()
    # Brokers
    BROKER_ID_NOT_REGISTERED = auto()
    # Records
    OFFSET_OUT_OF_RANGE = auto()
    OFFSET_NOT_EXPECTED = auto()
    CORRUPT_MESSAGE = auto()
    INVALID_RECORD = auto()
    INVALID_TIMESTAMP = auto()
    MESSAGE_TOO_LARGE = auto()
    RECORD_LIST_TOO_LARGE = auto()
    UNSUPPORTED_COMPRESSION_TYPE = auto()
    STORAGE_ERROR = auto()
    # Producers
    OUT_OF_ORDER_SEQUENCE_NUMBER = auto()
    INVALID_PRODUCER_EPOCH = auto()
    TRANSACTIONAL_ID_REFUSED = auto()
    # Groups
    COORDINATOR_NOT_AVAILABLE = auto()
    COORDINATOR_LOAD_IN_PROGRESS = auto()
    NOT_COORDINATOR = auto()
    INVALID_GROUP_ID = auto()
    ILLEGAL_GENERATION = auto()
    UNKNOWN_MEMBER_ID = auto()
    MEMBER_ID_REQUIRED = auto()
    FENCED_INSTANCE_ID = auto()
    INCONSISTENT_GROUP_PROTOCOL = auto()
    INVALID_SESSION_TIMEOUT = auto()
    REBALANCE_IN_PROGRESS = auto()
    GROUP_ID_NOT_FOUND = auto()
    NON_EMPTY_GROUP = auto()
    GROUP_SUBSCRIBED_TO_TOPIC = auto()
    GROUP_MAX_SIZE_REACHED = auto()
    FENCED_MEMBER_EPOCH = auto()
    STALE_MEMBER_EPOCH = auto()
    UNRELEASED_INSTANCE_ID = auto()
    UNSUPPORTED_ASSIGNOR = auto()
    INVALID_REGULAR_EXPRESSION = auto()
    OFFSET_METADATA_TOO_LARGE = auto()
    INVALID_COMMIT_OFFSET_SIZE = auto()
    # Queues
    INVALID_RECORD_STATE = auto()
    FENCED_STATE_EPOCH = auto()
    # Locks
    LOCK_HELD = auto()
    LOCK_NOT_HELD = auto()
    # Last resort: a bug of ours that was caught at the door
    UNKNOWN_SERVER_ERROR = auto()


class Refused(Exception):
    """An expected refusal: the peer's fault or a passing state, never a bug of ours."""

    def __init__(self, reason: Reason, detail: str = "") -> None:
        super().__init__(detail or reason.name.lower().replace("_", " "))
        self.reason = reason
        self.detail = detail or reason.name.lower().replace("_", " ")

    @property
    def sentence(self) -> str:
        """The detail as a sentence: it may begin small and end without a stop, because Kafka's
        clients frame it."""
        text = self.detail.strip()
        text = text[:1].upper() + text[1:]
        return text if text.endswith((".", "!", "?")) else f"{text}."


class StorageDamaged(Exception):
    """Bytes on disk that are neither valid nor a torn tail: the partition stops until repaired."""

    def __init__(self, path: str, position: int, detail: str) -> None:
        super().__init__(f"{path} is damaged at byte {position}: {detail}")
        self.path = path
        self.position = position
        self.detail = detail


class Explained(Exception):
    """Something that a user can put right: the text is for the user, who sees nothing else."""


class StartRefused(Explained):
    """The node can't start, for a reason that its operator can act on: one clear sentence."""
