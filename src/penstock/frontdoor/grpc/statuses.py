"""Errors as gRPC shows them: the one table from reasons to status codes, and details."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn

import grpc.aio
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc import StatusCode as Code

from penstock.frontdoor.grpc import messages
from penstock.model.errors import Reason, Refused

_NOT_FOUND: Final = (
    Reason.UNKNOWN_TOPIC_OR_PARTITION,
    Reason.UNKNOWN_TOPIC_ID,
    Reason.GROUP_ID_NOT_FOUND,
    Reason.BROKER_ID_NOT_REGISTERED,
)
# Something else must happen before the same request can succeed.
_PRECONDITION: Final = (
    Reason.NON_EMPTY_GROUP,
    Reason.GROUP_SUBSCRIBED_TO_TOPIC,
    Reason.UNKNOWN_MEMBER_ID,
    Reason.OUT_OF_ORDER_SEQUENCE_NUMBER,
    Reason.INVALID_PRODUCER_EPOCH,
    Reason.INVALID_RECORD_STATE,
    Reason.FENCED_STATE_EPOCH,
    Reason.LOCK_HELD,
    Reason.LOCK_NOT_HELD,
    Reason.OFFSET_NOT_EXPECTED,
)
_FORBIDDEN: Final = (Reason.POLICY_VIOLATION, Reason.TOPIC_DELETION_DISABLED)
# Passing: the same request may succeed a moment later.
_UNAVAILABLE: Final = (
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
_CODES: Final[Mapping[Reason, Code]] = {
    **dict.fromkeys(_NOT_FOUND, Code.NOT_FOUND),
    **dict.fromkeys(_PRECONDITION, Code.FAILED_PRECONDITION),
    **dict.fromkeys(_FORBIDDEN, Code.PERMISSION_DENIED),
    **dict.fromkeys(_UNAVAILABLE, Code.UNAVAILABLE),
    Reason.TOPIC_ALREADY_EXISTS: Code.ALREADY_EXISTS,
    Reason.OFFSET_OUT_OF_RANGE: Code.OUT_OF_RANGE,
    Reason.THROTTLED: Code.RESOURCE_EXHAUSTED,
    Reason.REQUEST_TIMED_OUT: Code.DEADLINE_EXCEEDED,
    Reason.UNSUPPORTED_VERSION: Code.UNIMPLEMENTED,
    Reason.CORRUPT_MESSAGE: Code.DATA_LOSS,
    Reason.UNKNOWN_SERVER_ERROR: Code.INTERNAL,
}
# Whatever is not above is something that the client must change.
_OTHERWISE: Final = Code.INVALID_ARGUMENT
# After these a client does well to wait.
_RETRY_AFTER_S: Final = {Code.RESOURCE_EXHAUSTED: 1, Code.UNAVAILABLE: 1}
DOMAIN: Final = "penstock"
_DETAILS_KEY: Final = "grpc-status-details-bin"


def code_of(reason: Reason) -> Code:
    return _CODES.get(reason, _OTHERWISE)


class Failure(Exception):
    """A call that gets no better answer than this."""

    def __init__(self, code: Code, message: str, reason: str, field: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.reason = reason
        # Which field of the request is wrong, if one is.
        self.field = field

    @classmethod
    def of(cls, refused: Refused) -> "Failure":
        return cls(code_of(refused.reason), refused.sentence, refused.reason.name)

    @property
    def problem(self) -> messages.Problem:
        """For answers that hold more than one outcome."""
        return messages.Problem(code=self.code.value[0], reason=self.reason, message=self.message)

    @property
    def status(self) -> status_pb2.Status:
        details: list[Any] = [error_details_pb2.ErrorInfo(reason=self.reason, domain=DOMAIN)]
        if self.field:
            violation = error_details_pb2.BadRequest.FieldViolation(
                field=self.field, description=self.message
            )
            details.append(error_details_pb2.BadRequest(field_violations=[violation]))
        if self.code in _RETRY_AFTER_S:
            delay = duration_pb2.Duration(seconds=_RETRY_AFTER_S[self.code])
            details.append(error_details_pb2.RetryInfo(retry_delay=delay))
        return status_pb2.Status(
            code=self.code.value[0], message=self.message, details=list(map(_packed, details))
        )

    async def end(self, call: grpc.aio.ServicerContext[Any, Any]) -> NoReturn:
        """Ends a call."""
        trailing = ((_DETAILS_KEY, self.status.SerializeToString()),)
        await call.abort(self.code, self.message, trailing)
        raise AssertionError("an aborted call goes on")


def invalid(field: str, message: str) -> Failure:
    """A field of the request is wrong."""
    return Failure(Code.INVALID_ARGUMENT, message, Reason.INVALID_REQUEST.name, field)


def busy(message: str) -> Failure:
    return Failure(Code.RESOURCE_EXHAUSTED, message, Reason.THROTTLED.name)


def stopping() -> Failure:
    return Failure(Code.UNAVAILABLE, "This node is stopping.", "STOPPING")


def bug() -> Failure:
    message = "The server failed to handle this; its log says why."
    return Failure(Code.INTERNAL, message, Reason.UNKNOWN_SERVER_ERROR.name)


def _packed(detail: Any) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(detail)
    return packed


REASONS_BY_CODE: Final[Mapping[Code, Sequence[Reason]]] = {
    code: [reason for reason in Reason if code_of(reason) is code]
    for code in dict.fromkeys([*_CODES.values(), _OTHERWISE])
}
