"""The place of a message in a distributed trace, as W3C's header `traceparent` says it.

A producer puts the header into a record. Everybody who handles the record later names the same
trace. What is not well formed counts as missing: a trace is a help, and never a reason to refuse
a record.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
TRACE_HEADERS: Final = frozenset({TRACEPARENT, TRACESTATE})
# As W3C says it, a list of vendors' own words is cut off rather than passed on if it is longer.
TRACESTATE_LENGTH_MAX: Final = 512

_FORM: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_SAMPLED: Final = 0x01
# The version that may not exist, and the only one whose length is fixed.
_NO_VERSION: Final = "ff"
_VERSION: Final = "00"

Headers: TypeAlias = Iterable[tuple[str, bytes | None]]


class TraceContext(NamedTuple):
    trace_id: int
    # Of the span that the next one follows from.
    span_id: int
    # Whether the one who began the trace wants it recorded.
    is_sampled: bool
    state: str = ""

    def __str__(self) -> str:
        flags = _SAMPLED if self.is_sampled else 0
        return f"{_VERSION}-{self.trace_id:032x}-{self.span_id:016x}-{flags:02x}"


def parse_traceparent(text: str, state: str = "") -> TraceContext | None:
    """None if it is not one. Of a later version only what this one knows is read."""
    found = _FORM.fullmatch(text)
    if found is None or found[1] == _NO_VERSION or (found[1] == _VERSION and found[5]):
        return None
    trace_id, span_id = int(found[2], 16), int(found[3], 16)
    if not trace_id or not span_id:
        return None
    kept = state if len(state) <= TRACESTATE_LENGTH_MAX else ""
    return TraceContext(trace_id, span_id, bool(int(found[4], 16) & _SAMPLED), kept)


def context_of(headers: Headers) -> TraceContext | None:
    """What the headers of a record say; the last one counts, as for Kafka's clients."""
    parent = state = b""
    for name, value in headers:
        if name == TRACEPARENT:
            parent = value or b""
        elif name == TRACESTATE:
            state = value or b""
    if not parent:
        return None
    try:
        return parse_traceparent(parent.decode("ascii"), state.decode("ascii"))
    except UnicodeDecodeError:
        return None


def headers_of(context: TraceContext) -> tuple[tuple[str, bytes], ...]:
    """What a record gets to carry the context on."""
    parent = (TRACEPARENT, str(context).encode())
    if not context.state:
        return (parent,)
    return parent, (TRACESTATE, context.state.encode("ascii", "ignore"))
