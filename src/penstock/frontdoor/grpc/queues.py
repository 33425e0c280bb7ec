"""Queues, one question at a time: polling, settling by tokens, looking, operating."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from penstock.frontdoor.grpc import limits, messages
from penstock.frontdoor.grpc.context import Call, Context
from penstock.frontdoor.grpc.methods import Methods
from penstock.frontdoor.grpc.read import to_records_max, to_wait_s
from penstock.frontdoor.grpc.statuses import invalid
from penstock.frontdoor.grpc.translation import add_messages, fitting, to_message
from penstock.frontdoor.remote.queueing import Message, TokenOutcome

# Stored bytes of one poll: decompressed they should fit into an answer.
POLLED_BYTES_MAX = limits.REPLY_BYTES_MAX // 3


async def poll(context: Context, request: messages.PollRequest, call: Call) -> messages.PollReply:
    wait_s = to_wait_s(request, call)
    polling = context.parts.queueing.poll(
        request.topic,
        request.group,
        records_max=to_records_max(request, 1),
        lease_ms=request.lease_ms,
        wait_s=wait_s,
        bytes_max=POLLED_BYTES_MAX,
    )

    def undo(undelivered: Sequence[Message]) -> None:
        tokens = [each.token for each in undelivered]
        if tokens:
            context.spawn(context.parts.queueing.undo(request.topic, request.group, tokens))

    found = await context.unless_stopping(polling, lambda polled: undo(polled.messages))
    count = fitting(each.record for each in found.messages)
    # They do not fit into the answer.
    undo(found.messages[count:])
    reply = messages.PollReply(lease_ms=found.lease_ms)
    add_messages(reply.messages, found.messages[:count])
    return reply


# Tokens


async def ack(context: Context, request: messages.AckRequest, _: Call) -> messages.TokenOutcomes:
    settle = context.parts.queueing.ack
    return to_outcomes(await settle(request.topic, request.group, checked(request.tokens)))


async def nack(context: Context, request: messages.NackRequest, _: Call) -> messages.TokenOutcomes:
    delay_ms = request.delay_ms if request.HasField("delay_ms") else None
    settle = context.parts.queueing.nack
    return to_outcomes(
        await settle(request.topic, request.group, checked(request.tokens), delay_ms)
    )


async def extend(
    context: Context, request: messages.ExtendRequest, _: Call
) -> messages.TokenOutcomes:
    settle = context.parts.queueing.extend
    return to_outcomes(
        await settle(request.topic, request.group, checked(request.tokens), request.lease_ms)
    )


async def reject(
    context: Context, request: messages.RejectRequest, _: Call
) -> messages.TokenOutcomes:
    settle = context.parts.queueing.reject
    return to_outcomes(await settle(request.topic, request.group, checked(request.tokens)))


def checked(tokens: Sequence[str], field: str = "tokens") -> Sequence[str]:
    """Raises Failure if there are too many."""
    if len(tokens) > limits.TOKENS_MAX:
        detail = (
            f"{len(tokens):,} tokens are too many: a request has at most {limits.TOKENS_MAX:,}."
        )
        raise invalid(field, detail)
    return tokens


def to_outcomes(outcomes: Sequence[TokenOutcome]) -> messages.TokenOutcomes:
    return messages.TokenOutcomes(
        outcomes=[
            messages.TokenOutcome(
                token=each.token,
                outcome=each.outcome,
                detail=each.detail,
                lease_ms=each.lease_ms,
            )
            for each in outcomes
        ]
    )


# Looking and operating


async def peek(context: Context, request: messages.PeekRequest, _: Call) -> messages.PeekReply:
    found = await context.parts.queueing.peek(
        request.topic,
        request.group,
        records_max=to_records_max(request, limits.RECORDS_PER_REPLY),
        bytes_max=POLLED_BYTES_MAX,
    )
    reply = messages.PeekReply()
    add_messages(reply.messages, found[: fitting(each.record for each in found)])
    return reply


async def stats(context: Context, request: messages.StatsRequest, _: Call) -> messages.QueueState:
    found = await context.parts.queueing.stats(request.topic, request.group)
    return to_message(messages.QueueState, found)


async def purge(context: Context, request: messages.PurgeRequest, _: Call) -> messages.PurgeReply:
    partitions = list(request.partitions) or None
    count = await context.parts.queueing.purge(request.topic, request.group, partitions)
    return messages.PurgeReply(count=count)


async def redrive(
    context: Context, request: messages.RedriveRequest, _: Call
) -> messages.RedriveReply:
    limit = request.limit if request.HasField("limit") else limits.REDRIVEN_MAX
    found = await context.parts.queueing.redrive(request.topic, request.group, limit)
    return to_message(messages.RedriveReply, found)


def _turn(verb: str) -> Callable[[Context, Any, Call], Awaitable[messages.Done]]:
    async def answer(context: Context, request: Any, _: Call) -> messages.Done:
        await getattr(context.parts.queueing, verb)(request.topic, request.group)
        return messages.Done()

    return answer


METHODS: Methods = {
    "Poll": poll,
    "Ack": ack,
    "Nack": nack,
    "Extend": extend,
    "Reject": reject,
    "Peek": peek,
    "Stats": stats,
    "Purge": purge,
    "Redrive": redrive,
    "Pause": _turn("pause"),
    "Resume": _turn("resume"),
}
