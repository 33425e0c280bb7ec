"""Group consumption for clients that only ask for the next records.

A consumer belongs to the node that made it. If that node dies, or its process of doors, the
consumer is gone: make another one, through any node. It goes on at the committed offsets
(decision 50).
"""

import asyncio

from penstock.broker.doors.calls import DescribeNode
from penstock.frontdoor.http import messages
from penstock.frontdoor.http.context import Context, unless_gone
from penstock.frontdoor.http.problems import Problem
from penstock.frontdoor.http.read import stored
from penstock.frontdoor.http.requests import JSON_TYPE, Answer, Request, json_answer
from penstock.frontdoor.http.routes import Route
from penstock.frontdoor.remote.consuming import Busy, Consumer, Consumers
from penstock.frontdoor.remote.reading import EARLIEST, LATEST

_STARTS = {"earliest": EARLIEST, "latest": LATEST}


def _consumers(context: Context) -> Consumers:
    if context.consumers is None:
        now_s = asyncio.get_running_loop().time
        context.consumers = Consumers(context.broker, context.topics, context.reader, now_s)
    return context.consumers


def _found(context: Context, request: Request) -> Consumer:
    group, name = request.parameters["group"], request.parameters["consumer"]
    consumer = _consumers(context).find(group, name)
    if consumer is None:
        detail = (
            f"This node has no consumer {name[:100]!r} of the group: nobody used it for too long, "
            "the node restarted, or another one has it. Make a new one."
        )
        raise Problem(404, detail, reason="unknown_consumer")
    return consumer


async def make_consumer(context: Context, request: Request) -> Answer:
    new = await request.json(messages.NewConsumer)
    group = request.parameters["group"]
    node = (await context.ask(DescribeNode())).node
    made = await _consumers(context).create(
        group, sorted(set(new.topics)), _STARTS[new.start], new.idle_ms
    )
    return json_answer(messages.MadeConsumer(made.id, group, node, new.idle_ms), 201)


async def poll_consumer(context: Context, request: Request) -> Answer:
    wanted = await request.json(messages.ConsumerPoll)
    consumer = _found(context, request)
    polling = _consumers(context).poll(
        consumer, wanted.limit, wanted.wait_ms / 1000, commits=wanted.commit
    )
    try:
        found = await unless_gone(context, request, polling)
    except Busy:
        detail = "Another request polls this consumer; only one may at a time."
        raise Problem(409, detail, reason="busy") from None
    return json_answer(
        messages.Polled(
            [
                messages.PolledRecords(
                    each.topic,
                    [stored(one, each.partition, wanted.encoding) for one in each.records],
                )
                for each in found
            ]
        )
    )


async def commit_consumer(context: Context, request: Request) -> Answer:
    await request.json(messages.ConsumerCommit)
    await _consumers(context).commit(_found(context, request))
    return Answer(204)


async def close_consumer(context: Context, request: Request) -> Answer:
    await _consumers(context).close(_found(context, request))
    return Answer(204)


ROUTES = (
    Route(
        method="POST",
        path="/v1/groups/{group}/consumers",
        handler=make_consumer,
        summary="Make a consumer: a member of a group that is polled over HTTP.",
        help="It shares the partitions with all other members, of Kafka's clients too, and belongs "
        "to the node that was asked.",
        bodies={JSON_TYPE: messages.NewConsumer},
        answers={201: messages.MadeConsumer},
        problems=(404, 409, 415, 429, 504),
    ),
    Route(
        method="POST",
        path="/v1/groups/{group}/consumers/{consumer}/poll",
        handler=poll_consumer,
        summary="Commit what was delivered before, and get the next records.",
        bodies={JSON_TYPE: messages.ConsumerPoll},
        answers={200: messages.Polled},
        problems=(404, 409, 415, 504),
    ),
    Route(
        method="POST",
        path="/v1/groups/{group}/consumers/{consumer}/commit",
        handler=commit_consumer,
        summary="Commit what was delivered so far.",
        bodies={JSON_TYPE: messages.ConsumerCommit},
        answers={204: None},
        problems=(404, 409, 415, 504),
    ),
    Route(
        method="DELETE",
        path="/v1/groups/{group}/consumers/{consumer}",
        handler=close_consumer,
        summary="End a consumer; its partitions go to the others at once.",
        help="What was not committed is delivered again, to another one.",
        answers={204: None},
        problems=(404,),
    ),
)
