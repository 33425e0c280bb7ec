"""Bounds of the HTTP door, by name; the reference page lists them."""

from typing import Final

from penstock.frontdoor.remote.limits import (
    IDEMPOTENCY_KEY_LENGTH_MAX as IDEMPOTENCY_KEY_LENGTH_MAX,
)
from penstock.frontdoor.remote.limits import RECORDS_PER_REQUEST_MAX as RECORDS_PER_REQUEST_MAX
from penstock.frontdoor.remote.limits import STREAMS_MAX as STREAMS_MAX
from penstock.frontdoor.remote.limits import WAIT_S_MAX as WAIT_S_MAX
from penstock.model.limits import KIB, MIB

# Of one request.
HEADER_BYTES_MAX: Final = 32 * KIB
BODY_BYTES_MAX: Final = 32 * MIB
# Arrays and objects inside each other, in a body or in a value.
JSON_DEPTH_MAX: Final = 100
# Of a body whose request is answered already.
DISCARDED_BYTES_MAX: Final = 1 * MIB

# Of one answer.
RECORDS_PER_ANSWER_MAX: Final = 10_000
RECORDS_PER_ANSWER: Final = 100
# Of a queue: in one answer, and out to one stream at a time, by default and at most.
QUEUE_MESSAGES_MAX: Final = 1_000
STREAM_MESSAGES: Final = 10
STREAM_MESSAGES_MAX: Final = 100
# As Arrow, an answer is a stream: it may hold a whole topic.
ARROW_RECORDS_MAX: Final = 2**53
# What is read for it at a time; a batch that is larger comes whole.
ARROW_READ_BYTES_MAX: Final = 4 * MIB

# Of the process. Bodies count from when they begin to arrive until their request is answered.
BODIES_BYTES_MAX: Final = 128 * MIB
CONNECTIONS_MAX: Final = 5_000
STREAM_PARTITIONS_MAX: Final = 256
ARROW_STREAMS_MAX: Final = 8

# Time, in seconds. A connection without a request, headers from their first byte on, a whole body
# (so that the largest takes 1 Mbit/s), a stream without an event. BODY_PAUSE_S_MAX and UNREAD_S_MAX
# are the stretches in which a body comes, and a long answer is read, at BYTES_PER_S_MIN at least.
KEEP_ALIVE_S: Final = 75
HEADERS_S_MAX: Final = 10.0
BODY_S_MAX: Final = 300.0
BODY_PAUSE_S_MAX: Final = 10.0
UNREAD_S_MAX: Final = 15.0
# Half of what common proxies wait for; a beat of each of a thousand streams costs.
STREAM_BEAT_S: Final = 30.0
BYTES_PER_S_MIN: Final = 1 * KIB
