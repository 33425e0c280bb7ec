"""Bounds of the gRPC door, by name; the reference page lists them."""

from typing import Final

from penstock.broker.doors import queue_calls
from penstock.frontdoor.remote.limits import (
    IDEMPOTENCY_KEY_LENGTH_MAX as IDEMPOTENCY_KEY_LENGTH_MAX,
)
from penstock.frontdoor.remote.limits import RECORDS_PER_REQUEST_MAX as RECORDS_PER_REQUEST_MAX
from penstock.frontdoor.remote.limits import STREAMS_MAX as STREAMS_MAX
from penstock.frontdoor.remote.limits import WAIT_S_MAX as WAIT_S_MAX
from penstock.model.limits import KIB, MIB

# Of one message, as gRPC's clients have it for what they receive.
MESSAGE_BYTES_MAX: Final = 4 * MIB
# Of the keys, values and headers in an answer; one record that is larger comes alone.
REPLY_BYTES_MAX: Final = 3 * MIB
METADATA_BYTES_MAX: Final = 16 * KIB
RECORDS_PER_REPLY: Final = 100
RECORDS_PER_REPLY_MAX: Final = 10_000
# A call that waits for records ends this long before its deadline, so that its answer arrives.
DEADLINE_MARGIN_S: Final = 0.2

# Of a PublishStream: requests that are read before the first of them is answered.
REQUESTS_UNDER_WAY_MAX: Final = 16
# Of all requests that are being written. A call beyond it is refused, a stream waits.
REQUEST_BYTES_MAX: Final = 128 * MIB

# Of a Subscribe.
PARTITIONS_MAX: Final = 256
CREDIT_MAX: Final = 1_000_000
PUSHED_RECORDS_MAX: Final = 2_000
PUSHED_BYTES_MAX: Final = 512 * KIB
# What was read and waits for credit; beyond it nothing more is read.
HELD_BYTES_MAX: Final = 1 * MIB
# How often a look is taken whether the topic has got partitions.
GROWTH_LOOK_S: Final = 30.0

# Of one request about leases.
TOKENS_MAX: Final = queue_calls.CLAIMS_MAX

# Of a queue's Subscribe: messages that are polled at a time, how long a poll waits before it asks
# again, requests with tokens that are under way, and messages that are pushed and not settled.
POLLED_MESSAGES_MAX: Final = 500
POLL_WAIT_S: Final = 30.0
SETTLING_MAX: Final = 64
UNSETTLED_MAX: Final = 100_000
REDRIVEN_MAX: Final = 1_000

# Of the process.
CONNECTIONS_MAX: Final = 2_000
CALLS_PER_CONNECTION_MAX: Final = 1_000
CALLS_MAX: Final = 4_000
# Memory of the process from which on the connection that has sent most since is closed, if that is
# enough to matter: a call's message is held until it is whole, and there may be many that never
# become whole.
MEMORY_BYTES_MAX: Final = 1024 * MIB
MEMORY_CHECK_S: Final = 0.25
GREEDY_BYTES_MIN: Final = 1 * MIB

# Time, in seconds: until a client has said that it speaks HTTP/2, without any call, and between
# pings that a client which is there must answer.
HANDSHAKE_S_MAX: Final = 10
IDLE_S_MAX: Final = 600
PING_S: Final = 60
PING_ANSWER_S_MAX: Final = 20
# Clients may ping this often themselves.
CLIENT_PING_S_MIN: Final = 10
HEALTH_CHECK_S: Final = 2.0
