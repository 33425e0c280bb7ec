"""Takes the calls of doors, and has them answered by this node or by the one that must.

A method says where it is answered: on the node that is asked, on the one that its `place` names
(the coordinator of a group, say), or on all nodes. A call that goes to another node travels there
over the connection between nodes, and its desk answers it itself: what is passed on is never passed
on again. When the place changed meanwhile, the first desk looks for it again, within a bound.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from penstock.broker.doors import PASSED_ON, calls
from penstock.broker.doors.calls import Call
from penstock.broker.forwarding import PASSING, Attempts
from penstock.broker.services import Services
from penstock.broker.share_coordinators import Peers
from penstock.model.errors import Reason, Refused
from penstock.model.ids import BrokerId

# How long a call may look for its place, and wait there.
CALL_S_MAX: Final = 10.0
# Where the place may have changed, or will soon have someone who answers. A topic that is unknown
# there stays so: who made one was told when all nodes had heard of it.
_PASSING: Final = PASSING - {Reason.UNKNOWN_TOPIC_ID, Reason.UNKNOWN_TOPIC_OR_PARTITION} | {
    Reason.NOT_COORDINATOR,
    Reason.COORDINATOR_NOT_AVAILABLE,
    Reason.COORDINATOR_LOAD_IN_PROGRESS,
    Reason.NOT_CONTROLLER,
}

C = TypeVar("C", bound=Call[Any])


@dataclass(frozen=True, slots=True)
class Method(Generic[C]):
    """How one call is answered."""

    call: type[C]
    answer: "Callable[[Desk, C], Awaitable[Any]]"
    # The node that must answer; without it, the one that was asked.
    place: "Callable[[Desk, C], Awaitable[BrokerId]] | None" = None


class Desk:
    def __init__(
        self, *, own: BrokerId, services: Services, peers: Peers, methods: Iterable[Method[Any]]
    ) -> None:
        self.own = own
        self.services = services
        self._peers = peers
        self._methods = {method.call: method for method in methods}
        # Polls of queues that can be called off, by the names that those who asked gave them.
        self.polls: dict[str, asyncio.Task[Any]] = {}
        # How many polls wait at other nodes, and the number of the next poll.
        self.polls_elsewhere = 0
        self.poll_number = 0
        self._spawned: set[asyncio.Task[None]] = set()

    async def serve(self, name: str, payload: bytes) -> bytes:
        """Answers a door of this node."""
        call = calls.decode_call(name, payload)
        method = self._method(call)
        if method.place is None:
            return calls.encode(await method.answer(self, call))
        return await self._at_place(method, call, payload)

    async def serve_passed_on(self, payload: bytes) -> bytes:
        """Answers the desk of another node."""
        if not payload:
            raise Refused(Reason.INVALID_REQUEST, "a call without a method")
        name_end = 1 + payload[0]
        call = calls.decode_call(payload[1:name_end].decode(errors="replace"), payload[name_end:])
        return calls.encode(await self._method(call).answer(self, call))

    async def ask(self, node: BrokerId, call: Call[calls.A], timeout_s: float) -> calls.A:
        """Has one node answer, which may be this one."""
        return calls.decode_answer(call, await self._pass_on(node, call, None, timeout_s))

    async def ask_all(
        self, call: Call[calls.A], timeout_s: float = CALL_S_MAX
    ) -> tuple[Sequence[calls.A], Sequence[int]]:
        """The answers of all nodes of the cluster, and which ones gave none."""
        nodes = [broker.id for broker, _ in self.services.leaderships.all_brokers()]
        answers = await asyncio.gather(
            *(self.ask(node, call, timeout_s) for node in nodes), return_exceptions=True
        )
        found: list[calls.A] = []
        missing: list[int] = []
        for node, answer in zip(nodes, answers, strict=True):
            if isinstance(answer, Refused):
                missing.append(node)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                found.append(answer)
        return found, missing

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """For what nobody waits for; it must end soon, and by itself."""
        task = asyncio.get_running_loop().create_task(work)
        self._spawned.add(task)
        task.add_done_callback(self._spawned.discard)

    # Inside

    def _method(self, call: Call[Any]) -> Method[Any]:
        method = self._methods.get(type(call))
        if method is None:
            name = type(call).__name__
            raise Refused(Reason.UNSUPPORTED_VERSION, f"This node does not answer {name}.")
        return method

    async def _at_place(self, method: Method[Any], call: Call[Any], payload: bytes) -> bytes:
        clock = self.services.clock
        attempts = Attempts(clock, clock.monotonic() + CALL_S_MAX, _PASSING)
        assert method.place is not None
        while True:
            try:
                node = await method.place(self, call)
                return await self._pass_on(node, call, payload, max(0.0, attempts.left_s))
            except Refused as refused:
                await attempts.after(refused)

    async def _pass_on(
        self, node: BrokerId, call: Call[Any], payload: bytes | None, timeout_s: float
    ) -> bytes:
        if node == self.own:
            return calls.encode(await self._method(call).answer(self, call))
        name = type(call).__name__.encode()
        asked = bytes((len(name),)) + name + (payload or calls.encode(call))
        return await self._peers.call(node, PASSED_ON, asked, timeout_s)
