"""Proves that the error codes are Kafka's, by comparison with kio's table."""

from kio.schema.errors import ErrorCode as KioErrorCode

from penstock.protocol.kafka.error_codes import ErrorCode


def test_names_numbers_and_retriability_equal_kio() -> None:
    ours = {(code.name, int(code), code.retriable) for code in ErrorCode}
    theirs = {(code.name.upper(), int(code), code.retriable) for code in KioErrorCode}
    assert ours == theirs
