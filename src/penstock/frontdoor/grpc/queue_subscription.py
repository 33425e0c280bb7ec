"""Working on a queue: Subscribe pushes messages against credits and settles them by their tokens.

Leases live as long as the call: what is not settled when it ends is given back, so that a worker
that dies holds nothing up. The attempt counts only for messages that were sent.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence

from penstock.frontdoor.grpc import limits, messages, statuses
from penstock.frontdoor.grpc.context import Context, Conversation
from penstock.frontdoor.grpc.queues import POLLED_BYTES_MAX, checked, to_outcomes
from penstock.frontdoor.grpc.statuses import invalid
from penstock.frontdoor.grpc.translation import add_messages, fitting
from penstock.frontdoor.remote.queueing import Messages, TokenOutcome

# Tokens that are given back with one call.
TOKENS_PER_CALL = 5_000


async def subscribe(
    context: Context, conversation: Conversation[messages.QueueSubscribeRequest]
) -> None:
    with context.stream():
        requests = conversation.requests()
        first = await anext(requests, None)
        if first is None or not first.HasField("start"):
            raise invalid("start", "The first message must be `start`.")
        subscription = _Subscription(context, conversation, first.start)
        tasks = [
            asyncio.ensure_future(subscription.listen(requests)),
            asyncio.ensure_future(subscription.push()),
            asyncio.ensure_future(subscription.refused()),
        ]
        try:
            # The reader of requests ends when the client has said all: then so does the call.
            await context.first_of(tasks)
        finally:
            for task in tasks:
                task.cancel()
            context.spawn(subscription.give_back(tasks))


class _Subscription:
    def __init__(
        self,
        context: Context,
        conversation: Conversation[messages.QueueSubscribeRequest],
        start: messages.StartQueueSubscription,
    ) -> None:
        self._context = context
        self._queueing = context.parts.queueing
        self._conversation = conversation
        self._topic = start.topic
        self._group = start.group
        self._lease_ms = start.lease_ms
        self._loop = asyncio.get_running_loop()
        self._credit = 0
        self._has_credit = asyncio.Event()
        self._sending = asyncio.Lock()
        self._settling: set[asyncio.Task[None]] = set()
        self._failures: asyncio.Queue[BaseException] = asyncio.Queue()
        self._room = asyncio.Semaphore(limits.SETTLING_MAX)
        # Tokens of what was polled, and when their leases end if nobody extends them; those that
        # were not sent yet.
        self._unsettled: dict[str, float] = {}
        self._unsent: set[str] = set()
        self._grant(start.credit)

    # What the client says

    async def listen(self, requests: AsyncIterator[messages.QueueSubscribeRequest]) -> None:
        async for request in requests:
            if request.WhichOneof("request") == "credit":
                self._grant(request.credit)
            else:
                await self._room.acquire()
                self._start(request)
        while self._settling:
            await asyncio.gather(*self._settling)

    def _grant(self, credit: int) -> None:
        if credit < 0 or self._credit + credit > limits.CREDIT_MAX:
            raise invalid("credit", f"It must be 0 or more, and all of it {limits.CREDIT_MAX:,}.")
        self._credit += credit
        if self._credit:
            self._has_credit.set()

    # Settling

    def _start(self, request: messages.QueueSubscribeRequest) -> None:
        asked, ended = self._asked(request)
        task = self._loop.create_task(self._settle(asked, ended))
        self._settling.add(task)
        task.add_done_callback(self._settled)

    def _settled(self, task: "asyncio.Task[None]") -> None:
        self._settling.discard(task)
        self._room.release()
        if not task.cancelled() and (failure := task.exception()) is not None:
            self._failures.put_nowait(failure)

    async def refused(self) -> None:
        """Raises what went wrong with tokens as a whole, if something does."""
        raise await self._failures.get()

    def _asked(
        self, request: messages.QueueSubscribeRequest
    ) -> tuple[Awaitable[Sequence[TokenOutcome]], Sequence[str]]:
        """What is asked of the queue, and whose leases it is to end."""
        queue = self._topic, self._group
        kind = request.WhichOneof("request")
        if kind == "ack":
            tokens = checked(request.ack.tokens, "ack.tokens")
            return self._queueing.ack(*queue, tokens), tokens
        if kind == "nack":
            tokens = checked(request.nack.tokens, "nack.tokens")
            delay_ms = request.nack.delay_ms if request.nack.HasField("delay_ms") else None
            return self._queueing.nack(*queue, tokens, delay_ms), tokens
        if kind == "extend":
            tokens = checked(request.extend.tokens, "extend.tokens")
            return self._queueing.extend(*queue, tokens, request.extend.lease_ms), ()
        if kind == "reject":
            tokens = checked(request.reject.tokens, "reject.tokens")
            return self._queueing.reject(*queue, tokens), tokens
        raise invalid("request", "After the first message come credits and tokens.")

    async def _settle(self, asked: Awaitable[Sequence[TokenOutcome]], ended: Sequence[str]) -> None:
        """Meanwhile the messages take no room; those that are not settled then take it again."""
        held = {each: self._unsettled.pop(each) for each in ended if each in self._unsettled}
        try:
            outcomes = await asked
            for each in outcomes:
                if each.ends_lease:
                    held.pop(each.token, None)
                    self._unsettled.pop(each.token, None)
                elif each.lease_ms and each.token in self._unsettled:
                    self._unsettled[each.token] = self._loop.time() + each.lease_ms / 1000
        finally:
            self._unsettled.update(held)
        await self._send(messages.QueueSubscribeReply(settled=to_outcomes(outcomes)))

    # Pushing

    async def push(self) -> None:
        while True:
            await self._has_credit.wait()
            room = limits.UNSETTLED_MAX - len(self._unsettled)
            if room <= 0 and not self._forget_ended():
                detail = f"{len(self._unsettled):,} messages are not settled."
                raise statuses.busy(detail)
            polled = await self._queueing.poll(
                self._topic,
                self._group,
                records_max=min(self._credit, limits.POLLED_MESSAGES_MAX),
                lease_ms=self._lease_ms,
                wait_s=limits.POLL_WAIT_S,
                bytes_max=POLLED_BYTES_MAX,
            )
            await self._push(polled)

    def _forget_ended(self) -> bool:
        """Leases that ran out; whether there were some."""
        now = self._loop.time()
        kept = {token: end for token, end in self._unsettled.items() if end > now}
        has_some = len(kept) < len(self._unsettled)
        self._unsettled = kept
        return has_some

    async def _push(self, polled: Messages) -> None:
        found = polled.messages
        end = self._loop.time() + polled.lease_ms / 1000
        self._unsettled.update((each.token, end) for each in found)
        self._unsent.update(each.token for each in found)
        self._credit -= len(found)
        if self._credit <= 0:
            self._has_credit.clear()
        while found:
            count = fitting(each.record for each in found)
            reply = messages.QueueSubscribeReply()
            reply.messages.lease_ms = polled.lease_ms
            add_messages(reply.messages.messages, found[:count])
            await self._send(reply)
            found = found[count:]

    async def _send(self, reply: messages.QueueSubscribeReply) -> None:
        async with self._sending:
            # If the call ends from here on, the client may have got it all the same.
            self._unsent.difference_update(each.token for each in reply.messages.messages)
            await self._conversation.send(reply)

    # The end

    async def give_back(self, tasks: Sequence["asyncio.Task[None]"]) -> None:
        """After the call, when what is on its way is done."""
        await asyncio.gather(*tasks, *self._settling, return_exceptions=True)
        queue = self._topic, self._group
        for part in _in_parts([each for each in self._unsettled if each in self._unsent]):
            await self._queueing.undo(*queue, part)
        for part in _in_parts([each for each in self._unsettled if each not in self._unsent]):
            await self._queueing.nack(*queue, part, 0)


def _in_parts(tokens: Sequence[str]) -> Iterator[Sequence[str]]:
    for first in range(0, len(tokens), TOKENS_PER_CALL):
        yield tokens[first : first + TOKENS_PER_CALL]
