"""Queues: `/v1/queues/{topic}/{group}`, a topic as the workers of a group share it.

A poll leases messages; each has a token, with which anyone can ack it, give it back, extend its
lease or reject it, through any node. Each token of a request has its own result.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec

from penstock.frontdoor.http import queue_messages as shapes
from penstock.frontdoor.http.context import Context, unless_gone
from penstock.frontdoor.http.limits import QUEUE_MESSAGES_MAX
from penstock.frontdoor.http.problems import Problem
from penstock.frontdoor.http.read import ENCODING, ENCODINGS, stored
from penstock.frontdoor.http.requests import JSON_TYPE, Answer, Request, json_answer
from penstock.frontdoor.http.routes import Parameter, Route
from penstock.frontdoor.remote.queueing import Message, Messages, TokenOutcome

MULTI_STATUS: Final = 207
PEEKED: Final = 10
_COUNTS: Final = ("ready", "leased", "delayed", "blocked", "dying", "dead", "redriven", "expired")
# If all tokens of a request have one of these: what the client must change, or wait for.
_STATUSES: Final = {"malformed": 400, "forbidden": 403, "unavailable": 503}
_CONFLICT: Final = 409


def queue_of(request: Request) -> tuple[str, str]:
    return request.parameters["topic"], request.parameters["group"]


# Polling


async def poll_queue(context: Context, request: Request) -> Answer:
    encoding = request.choice("encoding", ENCODINGS)
    wanted = await request.json(shapes.Poll)
    queue = queue_of(request)
    polling = context.queueing.poll(
        *queue,
        records_max=wanted.limit,
        lease_ms=wanted.lease_ms or 0,
        wait_s=wanted.wait_ms / 1000,
    )

    def drop(polled: Messages) -> None:
        context.queueing.give_back(*queue, undelivered=[each.token for each in polled.messages])

    polled = await unless_gone(context, request, polling, drop)
    messages = [leased(each, encoding) for each in polled.messages]
    return json_answer(shapes.PolledMessages(messages, polled.lease_ms))


def leased(message: Message, encoding: str) -> shapes.QueueMessage:
    fields = msgspec.structs.asdict(stored(message.record, message.partition, encoding))
    return shapes.QueueMessage(**fields, attempt=message.attempt, token=message.token)


# Tokens


async def ack(context: Context, request: Request) -> Answer:
    wanted = await request.json(shapes.AckTokens)
    return await _settled(context, request, wanted.tokens, context.queueing.ack)


async def nack(context: Context, request: Request) -> Answer:
    wanted = await request.json(shapes.NackTokens)

    async def settle(topic: str, group: str, tokens: Sequence[str]) -> list[TokenOutcome]:
        return await context.queueing.nack(topic, group, tokens, wanted.delay_ms)

    return await _settled(context, request, wanted.tokens, settle)


async def extend(context: Context, request: Request) -> Answer:
    wanted = await request.json(shapes.ExtendTokens)

    async def settle(topic: str, group: str, tokens: Sequence[str]) -> list[TokenOutcome]:
        return await context.queueing.extend(topic, group, tokens, wanted.lease_ms or 0)

    return await _settled(context, request, wanted.tokens, settle)


async def reject(context: Context, request: Request) -> Answer:
    wanted = await request.json(shapes.AckTokens)
    return await _settled(context, request, wanted.tokens, context.queueing.reject)


async def _settled(
    context: Context,
    request: Request,
    tokens: Sequence[str],
    settle: Callable[[str, str, Sequence[str]], Awaitable[list[TokenOutcome]]],
) -> Answer:
    outcomes = await settle(*queue_of(request), tokens)
    for each in outcomes:
        follower = context.followed.get(each.token)
        if follower is not None and (each.ends_lease or each.lease_ms):
            follower(each.token, each.lease_ms or None)
    results = [
        shapes.TokenResult(
            each.token,
            each.outcome,  # type: ignore[arg-type]
            "" if each.is_ok else each.detail,
            each.lease_ms,
        )
        for each in outcomes
    ]
    good = sum(each.is_ok for each in outcomes)
    if good == len(outcomes):
        return json_answer(shapes.TokenResults(results))
    if good:
        return json_answer(shapes.TokenResults(results), MULTI_STATUS)
    first = outcomes[0]
    raise Problem(
        _STATUSES.get(first.outcome, _CONFLICT),
        first.detail,
        reason=f"lease_{first.outcome}",
        results=[msgspec.to_builtins(each) for each in results],
    )


# Looking


async def peek_queue(context: Context, request: Request) -> Answer:
    encoding = request.choice("encoding", ENCODINGS)
    limit = request.number("limit", PEEKED, 1, QUEUE_MESSAGES_MAX)
    found = await context.queueing.peek(*queue_of(request), records_max=limit)
    messages = [
        shapes.PeekedMessage(
            **msgspec.structs.asdict(stored(each.record, each.partition, encoding)),
            attempt=each.attempt,
        )
        for each in found
    ]
    return json_answer(shapes.PeekedMessages(messages))


async def describe_queue(context: Context, request: Request) -> Answer:
    topic, group = queue_of(request)
    state = await context.queueing.stats(topic, group)
    partitions = [
        shapes.QueuePartition(
            partition=each.partition, **{name: getattr(each, name) for name in _COUNTS}
        )
        for each in state.partitions
    ]
    totals: dict[str, Any] = {
        name: sum(getattr(each, name) for each in partitions) for name in _COUNTS
    }
    age_ms = None if state.oldest_age_ms < 0 else state.oldest_age_ms
    found = shapes.Queue(
        topic=topic,
        group=group,
        paused=state.is_paused,
        oldest_age_ms=age_ms,
        partitions=partitions,
        **totals,
    )
    return json_answer(found)


# Operating


async def purge_queue(context: Context, request: Request) -> Answer:
    wanted = await request.json(shapes.Purge)
    count = await context.queueing.purge(*queue_of(request), wanted.partitions)
    return json_answer(shapes.PurgedMessages(count))


async def redrive_queue(context: Context, request: Request) -> Answer:
    wanted = await request.json(shapes.Redrive)
    found = await context.queueing.redrive(*queue_of(request), wanted.limit)
    return json_answer(
        shapes.RedrivenMessages(found.reopened, found.copied, found.skipped, found.is_finished)
    )


async def pause_queue(context: Context, request: Request) -> Answer:
    await request.json(shapes.Nothing)
    await context.queueing.pause(*queue_of(request))
    return Answer(204)


async def resume_queue(context: Context, request: Request) -> Answer:
    await request.json(shapes.Nothing)
    await context.queueing.resume(*queue_of(request))
    return Answer(204)


_PATH: Final = "/v1/queues/{topic}/{group}"


def _of_tokens(name: str, handler: Any, shape: Any, summary: str, more: str = "") -> Route:
    return Route(
        method="POST",
        path=f"{_PATH}/{name}",
        handler=handler,
        summary=summary,
        help="Each token has its own result. 207 says that some were good and some were not; if "
        f"none was, the answer is a problem document with the results in it. {more}".strip(),
        bodies={JSON_TYPE: shape},
        answers={200: shapes.TokenResults, MULTI_STATUS: shapes.TokenResults},
        problems=(404, 409, 413, 415, 429, 504),
    )


ROUTES = (
    Route(
        method="GET",
        path=_PATH,
        handler=describe_queue,
        summary="Say how much is in a queue.",
        answers={200: shapes.Queue},
        problems=(404, 504),
    ),
    Route(
        method="POST",
        path=f"{_PATH}/poll",
        handler=poll_queue,
        summary="Lease messages of a queue.",
        help="The messages are this client's until their lease ends. Each has a token, which any "
        "node takes for ack, nack, extend and reject. The group needs no members, and a new queue "
        "begins with the earliest record of the topic, unless the group's settings say something "
        "else. If the client goes away before the answer, nothing is leased.",
        parameters=(ENCODING,),
        bodies={JSON_TYPE: shapes.Poll},
        answers={200: shapes.PolledMessages},
        problems=(404, 413, 415, 429, 504),
    ),
    _of_tokens("ack", ack, shapes.AckTokens, "Say that messages are done with."),
    _of_tokens(
        "nack",
        nack,
        shapes.NackTokens,
        "Give messages back, to be tried again now or later.",
        "A message that was tried too often is given up.",
    ),
    _of_tokens(
        "extend",
        extend,
        shapes.ExtendTokens,
        "Begin leases again.",
        "The result says how long such a lease lasts, as `lease_ms`.",
    ),
    _of_tokens(
        "reject",
        reject,
        shapes.AckTokens,
        "Give messages up.",
        "They go to the group's dead-letter topic, if it has one.",
    ),
    Route(
        method="GET",
        path=f"{_PATH}/peek",
        handler=peek_queue,
        summary="Show what would be delivered next, without leasing it.",
        parameters=(
            Parameter(
                name="limit",
                help="At most this many messages.",
                schema={
                    "type": "integer",
                    "minimum": 1,
                    "maximum": QUEUE_MESSAGES_MAX,
                    "default": PEEKED,
                },
            ),
            ENCODING,
        ),
        answers={200: shapes.PeekedMessages},
        problems=(404, 504),
    ),
    Route(
        method="POST",
        path=f"{_PATH}/purge",
        handler=purge_queue,
        summary="Drop what is in a queue.",
        help="Nothing that is ready, delayed or blocked is delivered any more. What is leased "
        "stays with who has it. The records stay in the topic.",
        bodies={JSON_TYPE: shapes.Purge},
        answers={200: shapes.PurgedMessages},
        problems=(404, 413, 415, 504),
    ),
    Route(
        method="POST",
        path=f"{_PATH}/redrive",
        handler=redrive_queue,
        summary="Bring dead letters back into their queue.",
        bodies={JSON_TYPE: shapes.Redrive},
        answers={200: shapes.RedrivenMessages},
        problems=(404, 413, 415, 504),
    ),
    Route(
        method="POST",
        path=f"{_PATH}/pause",
        handler=pause_queue,
        summary="Deliver nothing of a queue for now.",
        help="Polls find it empty, wherever they come from. What is leased can be acked. It is "
        "kept in the group's setting penstock.queue.paused.topics.",
        bodies={JSON_TYPE: shapes.Nothing},
        answers={204: None},
        problems=(404, 413, 415, 504),
    ),
    Route(
        method="POST",
        path=f"{_PATH}/resume",
        handler=resume_queue,
        summary="Deliver again what is in a queue.",
        bodies={JSON_TYPE: shapes.Nothing},
        answers={204: None},
        problems=(404, 413, 415, 504),
    ),
)
