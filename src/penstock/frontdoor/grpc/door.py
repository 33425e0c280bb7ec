"""Builds the gRPC door out of its parts."""

import asyncio
import contextlib
import logging
import os
import secrets
import socket
import sys
import time
from collections.abc import Collection, Sequence
from typing import Final

import grpc
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2

from penstock.frontdoor.grpc import limits
from penstock.frontdoor.grpc.context import Context
from penstock.frontdoor.grpc.health import SERVICE_NAME as HEALTH_NAME
from penstock.frontdoor.grpc.health import Health
from penstock.frontdoor.grpc.messages import DESCRIPTOR
from penstock.frontdoor.grpc.methods import make_handler
from penstock.frontdoor.grpc.relay import Relay
from penstock.frontdoor.grpc.services import SERVICES
from penstock.frontdoor.remote.parts import Parts
from penstock.frontdoor.remote.stopping import Stopping

# Only messages that are not compressed: a small one could become gigabytes.
_IDENTITY_ONLY: Final = 1
OPTIONS: Final = (
    ("grpc.max_receive_message_length", limits.MESSAGE_BYTES_MAX),
    # A record that is larger than an answer should be comes alone.
    ("grpc.max_send_message_length", -1),
    ("grpc.max_metadata_size", limits.METADATA_BYTES_MAX),
    ("grpc.max_concurrent_streams", limits.CALLS_PER_CONNECTION_MAX),
    ("grpc.max_connection_idle_ms", limits.IDLE_S_MAX * 1000),
    ("grpc.server_handshake_timeout_ms", limits.HANDSHAKE_S_MAX * 1000),
    ("grpc.keepalive_time_ms", limits.PING_S * 1000),
    ("grpc.keepalive_timeout_ms", limits.PING_ANSWER_S_MAX * 1000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", limits.CLIENT_PING_S_MIN * 1000),
    ("grpc.compression_enabled_algorithms_bitset", _IDENTITY_ONLY),
)
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")

logger = logging.getLogger(__name__)


class GrpcDoor:
    def __init__(self, parts: Parts, sockets: Sequence[socket.socket], *, drain_s: float) -> None:
        self._sockets = sockets
        self._drain_s = drain_s
        self._context = Context(
            parts=parts,
            now_ms=lambda: time.time_ns() // 1_000_000,
            stopping=Stopping(),
        )

    async def run_until_stopped(self) -> None:
        if sys.platform == "linux":
            # Not in the file system, so nothing is left behind however the process ends.
            name = f"penstock-{secrets.token_hex(16)}"
            await self._run(f"unix-abstract:{name}", f"\0{name}")
            return
        # Imported here because Linux does not need it.
        import tempfile

        with tempfile.TemporaryDirectory(prefix="penstock-grpc-") as folder:
            await self._run(f"unix:{folder}/inner", f"{folder}/inner")

    async def _run(self, target: str, inner: str) -> None:
        """The same socket, as gRPC writes it and as the system does."""
        server = make_server(self._context)
        server.add_insecure_port(target)
        await server.start()
        relay = Relay(self._sockets, inner, memory_bytes)
        relay.open()
        with self._context.stopping.watched() as stopping:
            await asyncio.wait([stopping])
        relay.close()
        await server.stop(self._drain_s)
        await self._context.drain()

    def stop(self) -> None:
        self._context.stopping.set()


def make_server(context: Context) -> grpc.aio.Server:
    server = grpc.aio.server(options=OPTIONS, maximum_concurrent_rpcs=limits.CALLS_MAX)
    services = DESCRIPTOR.services_by_name
    names = [service.full_name for service in services.values()]
    server.add_generic_rpc_handlers(
        [make_handler(context, service, SERVICES[name]) for name, service in services.items()]
    )
    health_pb2_grpc.add_HealthServicer_to_server(Health(context, names), server)
    names += [HEALTH_NAME, reflection.SERVICE_NAME]
    reflection.enable_server_reflection(names, server, _pool_of_all())
    return server


def _pool_of_all() -> DescriptorPool:
    """What reflection describes: our own messages are in a pool of their own."""
    pool = DescriptorPool()
    for each in (DESCRIPTOR, health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR):
        pool.AddSerializedFile(each.serialized_pb)
    return pool


def memory_bytes() -> int:
    """What this process takes now; 0 where the system does not say."""
    with contextlib.suppress(OSError, ValueError), open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * _PAGE_BYTES
    return 0


def make_door(
    parts: Parts, sockets: Sequence[socket.socket], *, hosts: Collection[str], drain_s: float
) -> GrpcDoor:
    """`hosts` is for doors that web pages can reach: those can't speak plain HTTP/2."""
    return GrpcDoor(parts, sockets, drain_s=drain_s)
