"""Errors as problem documents (RFC 9457): the one table from reasons to statuses."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import msgspec

from penstock.model.errors import Reason, Refused

PROBLEM_TYPE: Final = "application/problem+json"

_NOT_FOUND = (
    Reason.UNKNOWN_TOPIC_OR_PARTITION,
    Reason.UNKNOWN_TOPIC_ID,
    Reason.GROUP_ID_NOT_FOUND,
    Reason.BROKER_ID_NOT_REGISTERED,
)
_CONFLICT = (
    Reason.TOPIC_ALREADY_EXISTS,
    Reason.NON_EMPTY_GROUP,
    Reason.GROUP_SUBSCRIBED_TO_TOPIC,
    Reason.UNKNOWN_MEMBER_ID,
    Reason.OUT_OF_ORDER_SEQUENCE_NUMBER,
    Reason.INVALID_PRODUCER_EPOCH,
    Reason.INVALID_RECORD_STATE,
    Reason.FENCED_STATE_EPOCH,
    Reason.OFFSET_NOT_EXPECTED,
    Reason.FENCED_MEMBER_EPOCH,
    Reason.STALE_MEMBER_EPOCH,
    Reason.LOCK_HELD,
    Reason.LOCK_NOT_HELD,
)
_TOO_LARGE = (Reason.MESSAGE_TOO_LARGE, Reason.RECORD_LIST_TOO_LARGE)
_FORBIDDEN = (Reason.POLICY_VIOLATION, Reason.TOPIC_DELETION_DISABLED)
# Passing: the same request may succeed a moment later.
_UNAVAILABLE = (
    Reason.NOT_CONTROLLER,
    Reason.NOT_LEADER_OR_FOLLOWER,
    Reason.LEADER_NOT_AVAILABLE,
    Reason.FENCED_LEADER_EPOCH,
    Reason.UNKNOWN_LEADER_EPOCH,
    Reason.NOT_ENOUGH_REPLICAS,
    Reason.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    Reason.OFFSET_NOT_AVAILABLE,
    Reason.PREFERRED_LEADER_NOT_AVAILABLE,
    Reason.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    Reason.COORDINATOR_NOT_AVAILABLE,
    Reason.COORDINATOR_LOAD_IN_PROGRESS,
    Reason.NOT_COORDINATOR,
    Reason.REBALANCE_IN_PROGRESS,
    Reason.STORAGE_ERROR,
)
_STATUSES: Final[Mapping[Reason, int]] = {
    **dict.fromkeys(_NOT_FOUND, 404),
    **dict.fromkeys(_CONFLICT, 409),
    **dict.fromkeys(_TOO_LARGE, 413),
    **dict.fromkeys(_FORBIDDEN, 403),
    **dict.fromkeys(_UNAVAILABLE, 503),
    Reason.OFFSET_OUT_OF_RANGE: 416,
    Reason.THROTTLED: 429,
    Reason.REQUEST_TIMED_OUT: 504,
    Reason.UNSUPPORTED_VERSION: 501,
    Reason.CORRUPT_MESSAGE: 500,
    Reason.UNKNOWN_SERVER_ERROR: 500,
}
# Whatever is not above is something that the client must change.
_OTHERWISE: Final = 400
# After these a client does well to wait.
RETRY_AFTER_S: Final = {429: 1, 503: 1}

REASONS: Final = {reason: reason.name.lower() for reason in Reason}


class ProblemDocument(msgspec.Struct, omit_defaults=True):
    """What went wrong. `reason` is a word for programs, `detail` a sentence for people."""

    title: str
    status: int
    detail: str
    reason: str
    type: str = "about:blank"
    # What became of each record, where some of a request have an outcome.
    results: list[dict[str, Any]] | None = None


class Problem(Exception):
    """A request that gets no better answer than this."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        reason: str = "invalid_request",
        headers: Mapping[str, str] | None = None,
        results: list[dict[str, Any]] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.reason = reason
        self.headers = dict(headers or {})
        self.results = results
        if status in RETRY_AFTER_S:
            self.headers.setdefault("retry-after", str(RETRY_AFTER_S[status]))

    @classmethod
    def of(cls, refused: Refused) -> "Problem":
        return cls(status_of(refused.reason), refused.sentence, reason=REASONS[refused.reason])

    @property
    def document(self) -> ProblemDocument:
        title = HTTPStatus(self.status).phrase
        return ProblemDocument(
            title=title,
            status=self.status,
            detail=self.detail,
            reason=self.reason,
            results=self.results,
        )


def status_of(reason: Reason) -> int:
    return _STATUSES.get(reason, _OTHERWISE)
