"""The error code of an outcome that is a value: a reason for a refusal, or None for success."""

from penstock.frontdoor.kafka.errors import ERROR_CODES
from penstock.model.errors import Reason
from penstock.protocol.kafka.error_codes import ErrorCode


def outcome_code(outcome: Reason | None) -> ErrorCode:
    return ErrorCode.NONE if outcome is None else ERROR_CODES[outcome]
