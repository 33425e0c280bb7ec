"""Health and metrics, for those who run the node."""

from penstock.broker.doors.calls import CollectMetrics, DescribeCopies, DescribeNode
from penstock.frontdoor.http.context import Context
from penstock.frontdoor.http.messages import Health
from penstock.frontdoor.http.requests import Answer, Request, json_answer
from penstock.frontdoor.http.routes import Route
from penstock.model.errors import Refused
from penstock.observe.exposition import content_type


async def live(_: Context, __: Request) -> Answer:
    """This process runs, whatever the broker does."""
    return json_answer(Health("ok"))


async def ready(context: Context, _: Request) -> Answer:
    try:
        status = await context.ask(DescribeNode())
    except Refused as refused:
        return json_answer(Health("unready", detail=refused.detail), 503)
    if status.unready:
        return json_answer(Health("unready", status.node, status.unready), 503)
    return json_answer(Health("ok", status.node))


async def in_sync(context: Context, _: Request) -> Answer:
    """Another node may be restarted once this one says so: nothing waits for it any more."""
    try:
        copies = await context.ask(DescribeCopies())
    except Refused as refused:
        return json_answer(Health("unready", detail=refused.detail), 503)
    if not copies.late:
        return json_answer(Health("ok", copies.node))
    named, more = ", ".join(copies.named), copies.late - len(copies.named)
    rest = f" and {more:,} more" if more else ""
    return json_answer(Health("unready", copies.node, f"Not in sync: {named}{rest}."), 503)


async def metrics(context: Context, request: Request) -> Answer:
    found = await context.ask(CollectMetrics())
    kind = content_type(request.headers.get("accept", ""))
    return Answer(200, await context.metrics.exposition(found, context.streams, kind), kind)


ROUTES = (
    Route(
        method="GET",
        path="/health/live",
        handler=live,
        summary="Whether the node runs.",
        answers={200: Health},
    ),
    Route(
        method="GET",
        path="/health/ready",
        handler=ready,
        summary="Whether the node can serve clients: it belongs to a cluster with a controller.",
        answers={200: Health, 503: Health},
    ),
    Route(
        method="GET",
        path="/health/in-sync",
        handler=in_sync,
        summary="Whether every copy that the node holds is in sync, so that another node may stop.",
        answers={200: Health, 503: Health},
    ),
    Route(
        method="GET",
        path="/metrics",
        handler=metrics,
        summary="Metrics for Prometheus: as text, or as OpenMetrics for an `Accept` of it.",
        help="[Metrics](metrics.md) lists them. There are none with `--metrics off`.",
        answer_types=("text/plain", "application/openmetrics-text"),
        problems=(403,),
    ),
)
