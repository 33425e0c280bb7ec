"""Serves functions as methods of gRPC: decodes requests, and ends calls that fail."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from penstock.frontdoor.grpc import limits
from penstock.frontdoor.grpc.context import Call, Context, Conversation
from penstock.frontdoor.grpc.statuses import Failure, bug, invalid
from penstock.model.errors import Refused

# How one call is answered: a single request by a reply, or a conversation. May raise Refused and
# Failure.
Answer: TypeAlias = Callable[[Context, Any, Call], Awaitable[Any]]
Talk: TypeAlias = Callable[[Context, Conversation[Any]], Awaitable[None]]
Methods: TypeAlias = Mapping[str, Answer | Talk]

# The door's name in metrics.
GRPC: Final = "grpc"

logger = logging.getLogger(__name__)


def make_handler(
    context: Context, service: ServiceDescriptor, methods: Methods
) -> grpc.GenericRpcHandler:
    """Every method of a service must be there."""
    handlers = {
        method.name: _make_method(context, method, methods[method.name])
        for method in service.methods
    }
    return grpc.method_handlers_generic_handler(service.full_name, handlers)


def _make_method(context: Context, method: MethodDescriptor, answer: Any) -> grpc.RpcMethodHandler:
    """Bytes are decoded here, where it can be said what is wrong with them."""
    decode = GetMessageClass(method.input_type).FromString
    requests = context.parts.counts.requests(
        GRPC, f"{method.containing_service.name}/{method.name}"
    )
    now_s = asyncio.get_running_loop().time
    if method.client_streaming:

        async def talk(_: Any, call: grpc.aio.ServicerContext[bytes, bytes]) -> None:
            try:
                await answer(context, _Conversation(call, decode))
            except Exception as problem:
                failure = _failure(method, problem)
                # How long a stream was open says nothing, so only its end is counted.
                requests.failed(failure.code.name)
                await failure.end(call)

        return grpc.stream_stream_rpc_method_handler(talk)

    async def serve(payload: bytes, call: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        began_s = now_s()
        try:
            reply = await answer(context, _decoded(decode, payload), _Call(call))
            return reply.SerializeToString()  # type: ignore[no-any-return]
        except Exception as problem:
            failure = _failure(method, problem)
            requests.failed(failure.code.name)
            await failure.end(call)
        finally:
            requests.seconds.observe(now_s() - began_s)

    return grpc.unary_unary_rpc_method_handler(serve)


def _failure(method: MethodDescriptor, problem: Exception) -> Failure:
    if isinstance(problem, Failure):
        return problem
    if isinstance(problem, Refused):
        return Failure.of(problem)
    logger.error("%s failed", method.full_name, exc_info=problem)
    return bug()


def _decoded(decode: Callable[[bytes], Any], payload: bytes) -> Any:
    try:
        return decode(payload)
    except DecodeError:
        raise invalid("", "The request can't be decoded.") from None


class _Call:
    def __init__(self, call: "grpc.aio.ServicerContext[bytes, bytes]") -> None:
        self._call = call

    def bounded_s(self, wait_s: float) -> float:
        left_s: float | None = self._call.time_remaining()
        if left_s is None:
            return wait_s
        return max(0.0, min(wait_s, left_s - limits.DEADLINE_MARGIN_S))

    def metadata(self, name: str) -> str | None:
        for key, value in self._call.invocation_metadata() or ():
            if key == name:
                return value if isinstance(value, str) else None
        return None


class _Conversation(_Call):
    def __init__(
        self, call: "grpc.aio.ServicerContext[bytes, bytes]", decode: Callable[[bytes], Any]
    ) -> None:
        super().__init__(call)
        self._decode = decode

    async def requests(self) -> AsyncIterator[Any]:
        while (payload := await self._call.read()) is not grpc.aio.EOF:
            yield _decoded(self._decode, payload)

    async def send(self, reply: Any) -> None:
        try:
            await self._call.write(reply.SerializeToString())
        except grpc.aio.InternalError:
            # The connection ended while the reply was on its way.
            raise asyncio.CancelledError from None
