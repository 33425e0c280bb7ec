"""Bounds of the broker that several places share, by name.

A node's settings may lower or raise those in `Limits`.
"""

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB

TOPIC_NAME_LENGTH_MAX = 249
PARTITIONS_PER_TOPIC_MAX = 10_000
PARTITIONS_PER_NODE_MAX = 20_000

# Of locks. A renewal costs a round of messages between nodes, so a lease can't be very short.
LOCK_NAME_LENGTH_MAX = 200
LOCK_OWNER_LENGTH_MAX = 200
LOCK_LEASE_MS_MIN = 1_000
LOCK_LEASE_MS_MAX = 12 * 60 * 60 * 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds that protect one process; passed to anyone who must respect them."""

    connections_max: int = 10_000
    frame_bytes_max: int = 100 * MIB
    # All bytes of frames that arrived but are not answered yet, over all connections.
    request_memory_bytes_max: int = 512 * MIB
    # Requests of one connection that wait for an answer; beyond it we stop reading the socket.
    requests_in_flight_per_connection_max: int = 256
    # Replies queued in memory for one slow reader; beyond it we stop reading its requests.
    reply_bytes_per_connection_max: int = 8 * MIB
    # Accepted but not yet durable bytes of one partition; beyond it produces wait.
    unflushed_bytes_per_partition_max: int = 64 * MIB
    unflushed_bytes_max: int = 256 * MIB
    connection_idle_ms_max: int = 600_000
    # A frame that began to arrive must be whole within this time, else the peer is half-open.
    frame_arrival_ms_max: int = 30_000
    fetch_sessions_max: int = 1_000
    share_sessions_max: int = 2_000
    fetch_bytes_max: int = 55 * MIB
    fetch_wait_ms_max: int = 60_000
    open_segments_max: int = 4_096
    group_members_max: int = 1_000
    # Of a group whose partitions the broker assigns: as many as may be connected.
    consumer_group_members_max: int = 10_000
