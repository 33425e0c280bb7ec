"""Regular expressions that members subscribe with: RE2 syntax, evaluated by the broker (KIP-848).

RE2 has no backtracking: matching takes time in proportion to the topic's name, whatever the
expression, and memory is bounded. Look-around and references back do not exist in it. The library
is imported with the first expression, since most nodes never see one.

Deviations from Kafka: repetitions that amount to more than 1,000 when they are nested, such as
`(x{100}){100}`, are refused, and so are expressions that are too long or take too much memory. Two
groups of one name are not refused.
"""

from functools import lru_cache
from typing import Any, Final

from penstock.model.errors import Reason, Refused

LENGTH_MAX: Final = 16_384
# What the compiled program and the states that matching adds may take.
MEMORY_BYTES_MAX: Final = 512 * 1024
EXPRESSIONS_KEPT_MAX: Final = 128

# What the library calls a fault and what Kafka's calls the same.
_KAFKA_NAMES: Final = {
    "bad repetition operator": "invalid nested repetition operator",
    "invalid named capture group": "invalid named capture",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid repetition size": "invalid repeat count",
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "no argument for repetition operator": "missing argument to repetition operator",
    "trailing \\": "trailing backslash at end of expression",
}


class Expression:
    """Matches whole names only."""

    __slots__ = ("_compiled", "text")

    def __init__(self, text: str, compiled: Any) -> None:
        self.text = text
        self._compiled = compiled

    def matches(self, topic: str) -> bool:
        return self._compiled.fullmatch(topic.encode()) is not None


@lru_cache(EXPRESSIONS_KEPT_MAX)
def compile_expression(text: str) -> Expression:
    """The members of a group tend to send the same expression, so some are kept."""
    import re2

    if len(text) > LENGTH_MAX:
        raise _refused(f"{text[:40]}...", f"it is longer than {LENGTH_MAX} characters")
    options = re2.Options()
    options.log_errors = False
    # Nobody asks what a group matched, and to note it can take seconds.
    options.never_capture = True
    options.max_mem = MEMORY_BYTES_MAX
    try:
        # Bytes match three times as fast as texts, since no positions have to be converted.
        return Expression(text, re2.compile(text.encode(), options))
    except re2.error as error:
        raise _refused(text, _fault(error)) from None


def _fault(error: Exception) -> str:
    said = error.args[0] if error.args else ""
    fault = (said.decode(errors="replace") if isinstance(said, bytes) else str(said)).split(": ")[0]
    return _KAFKA_NAMES.get(fault, fault)


def _refused(text: str, fault: str) -> Refused:
    # Kafka's words, which clients show to their users.
    detail = f"SubscribedTopicRegex `{text}` is not a valid regular expression: {fault}."
    return Refused(Reason.INVALID_REGULAR_EXPRESSION, detail)
