"""Expressions of subscriptions: RE2's syntax, whole names, and a clear refusal at a small cost."""

import subprocess
import sys
import time
from contextlib import suppress

import pytest

from penstock.groups.expressions import LENGTH_MAX, compile_expression
from penstock.model.errors import Reason, Refused

# A shared machine gets some room: the worst that was measured is some 20 ms.
WORST_SECONDS_MAX = 0.5


@pytest.mark.parametrize(
    ("text", "topic", "is_match"),
    [
        ("orders", "orders", True),
        ("orders", "orders-1", False),
        ("orders.*", "orders-1", True),
        ("rders", "orders", False),
        ("^orders-[0-9]+$", "orders-12", True),
        ("(?i)ORDERS", "orders", True),
        ("a|b", "b", True),
        ("", "orders", False),
        (r"\Qa.b\E", "a.b", True),
        (r"\Qa.b\E", "axb", False),
        ("(?P<name>o)rders", "orders", True),
    ],
)
def test_whole_names_match(text: str, topic: str, is_match: bool) -> None:
    assert compile_expression(text).matches(topic) is is_match


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("(", "missing closing )"),
        ("[abc", "missing closing ]"),
        ("*a", "missing argument to repetition operator"),
        ("a**", "invalid nested repetition operator"),
        ("a{1001}", "invalid repeat count"),
        ("a{2,1}", "invalid repeat count"),
        ("[z-a]", "invalid character class range"),
        (r"\p{Nope}", "invalid character class range"),
        (r"\1", "invalid escape sequence"),
        ("\\", "trailing backslash at end of expression"),
        ("(?=x)", "invalid or unsupported Perl syntax"),
        ("(?P<n", "invalid named capture"),
    ],
)
def test_a_bad_expression_is_refused_in_the_words_of_kafka(text: str, fault: str) -> None:
    with pytest.raises(Refused) as caught:
        compile_expression(text)
    assert caught.value.reason is Reason.INVALID_REGULAR_EXPRESSION
    expected = f"SubscribedTopicRegex `{text}` is not a valid regular expression: {fault}."
    assert caught.value.detail == expected


def test_an_expression_of_any_length_is_refused_in_a_short_sentence() -> None:
    with pytest.raises(Refused, match=f"longer than {LENGTH_MAX} characters") as caught:
        compile_expression("x" * (LENGTH_MAX + 1))
    assert len(caught.value.detail) < 200


def test_many_names_may_be_listed() -> None:
    names = [f"customer-{number}" for number in range(1_000)]
    assert compile_expression("|".join(names)).matches("customer-999")


@pytest.mark.parametrize(
    "text",
    [
        "(a+)+$",
        "(a|aa)+b",
        "(.*)*x(.*)*y",
        r"(?:\pL{900})",
        r"(?:\pL\pN\pS){300}",
        "((a{100}){100}){100}",
        "(" * (LENGTH_MAX // 2) + ")" * (LENGTH_MAX // 2),
        "(a*)*" * (LENGTH_MAX // 5),
        "[a-z]{1,50}" * (LENGTH_MAX // 11),
        "|".join("abcdefgh"[i % 8] * (i % 50) for i in range(LENGTH_MAX // 60)),
    ],
    ids=range(10),
)
def test_no_expression_takes_long(text: str) -> None:
    """Some of them take a backtracking matcher for years."""
    started = time.process_time()
    with suppress(Refused):
        compile_expression(text).matches("a" * 249)
    assert time.process_time() - started < WORST_SECONDS_MAX


def test_the_library_is_imported_with_the_first_expression() -> None:
    program = """
import sys
from penstock.groups.expressions import compile_expression
assert "re2" not in sys.modules
compile_expression("a")
assert "re2" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=100)
