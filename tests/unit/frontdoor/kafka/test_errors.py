"""Every reason has exactly the Kafka error code that clients expect."""

from penstock.frontdoor.kafka.errors import ERROR_CODES, OF_OTHER_DOORS, error_code
from penstock.model.errors import Reason, Refused
from penstock.protocol.kafka.error_codes import ErrorCode


def test_every_reason_of_kafka_has_a_code() -> None:
    assert set(ERROR_CODES) == set(Reason) - OF_OTHER_DOORS
    assert {Reason.LOCK_HELD, Reason.LOCK_NOT_HELD} == OF_OTHER_DOORS
    assert all(isinstance(code, ErrorCode) for code in ERROR_CODES.values())
    assert ErrorCode.NONE not in ERROR_CODES.values()


def test_no_two_reasons_share_a_code() -> None:
    assert len(set(ERROR_CODES.values())) == len(ERROR_CODES)


def test_reasons_with_another_name() -> None:
    assert ERROR_CODES[Reason.STORAGE_ERROR] == 56
    assert ERROR_CODES[Reason.INVALID_TOPIC] == 17
    assert ERROR_CODES[Reason.TRANSACTIONAL_ID_REFUSED] == 53
    assert ERROR_CODES[Reason.THROTTLED] == 89


def test_code_of_a_refusal() -> None:
    assert error_code(Refused(Reason.OFFSET_OUT_OF_RANGE)) is ErrorCode.OFFSET_OUT_OF_RANGE
