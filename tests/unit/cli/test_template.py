"""Templates of `penstock consume --format` write what kcat's -f would."""

import pytest

from penstock.cli.formats import BadFormat
from penstock.cli.template import parse_template
from penstock.client.consumer import ConsumedRecord

RECORD = ConsumedRecord(
    topic="t",
    partition=1,
    offset=5,
    timestamp_ms=1_700_000_000_000,
    key=b"k",
    value=b"v\xff",
    headers=(("a", b"1"), ("b", None)),
)
TOMBSTONE = ConsumedRecord(
    topic="t", partition=0, offset=0, timestamp_ms=None, key=None, value=None, headers=()
)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (r"%s", b"v\xff"),
        (r"%k %s\n", b"k v\xff\n"),
        (r"%t-%p@%o", b"t-1@5"),
        (r"%T\t%h", b"1700000000000\ta=1,b="),
        (r"%K,%S", b"1,2"),
        (r"%R%s", b"\x00\x00\x00\x02v\xff"),
        (r"100%%\r", b"100%\r"),
        (r"\x41\\\0", b"A\\\0"),
        ("Grüße %k", "Grüße k".encode()),
    ],
)
def test_tokens_and_escapes(template: str, expected: bytes) -> None:
    assert parse_template(template).filled(RECORD, b"") == expected


def test_what_is_null_has_no_length_and_is_written_as_the_mark() -> None:
    template = parse_template("%s|%k|%S|%K|%T|%h")
    assert template.filled(TOMBSTONE, b"NULL") == b"NULL|NULL|-1|-1|-1|"
    assert parse_template("%R").filled(TOMBSTONE, b"") == b"\xff\xff\xff\xff"


@pytest.mark.parametrize("template", ["%x", "50%", r"%s\q", "%s\\", r"%s\x4"])
def test_what_is_not_a_token_is_refused(template: str) -> None:
    with pytest.raises(BadFormat):
        parse_template(template)
