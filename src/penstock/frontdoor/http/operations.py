"""Health and metrics, for those who run the node."""

from penstock.broker.doors.calls import DescribeNode
from penstock.frontdoor.http.context import Context
from penstock.frontdoor.http.messages import Health
from penstock.frontdoor.http.metrics import CONTENT_TYPE
from penstock.frontdoor.http.requests import Answer, Request, json_answer
from penstock.frontdoor.http.routes import Route
from penstock.model.errors import Refused


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


async def metrics(context: Context, _: Request) -> Answer:
    status = await context.ask(DescribeNode())
    body = context.metrics.exposition(status.gauges, context.streams)
    return Answer(200, body, CONTENT_TYPE)


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
        path="/metrics",
        handler=metrics,
        summary="Metrics in the text format of Prometheus.",
        answer_types=("text/plain",),
    ),
)
