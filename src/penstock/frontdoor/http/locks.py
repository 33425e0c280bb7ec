"""Locks with leases and fencing tokens."""

from penstock.frontdoor.http import messages
from penstock.frontdoor.http.context import Context, unless_gone
from penstock.frontdoor.http.problems import Problem
from penstock.frontdoor.http.requests import JSON_TYPE, Answer, Request, json_answer
from penstock.frontdoor.http.routes import Route


async def list_locks(context: Context, _: Request) -> Answer:
    return json_answer(messages.Locks(messages.many(messages.Lock, await context.locks.list())))


async def describe_lock(context: Context, request: Request) -> Answer:
    name = request.parameters["lock"]
    found = await context.locks.describe(name)
    if found is None:
        raise Problem(404, f"Nobody holds the lock {name}.", reason="lock_not_held")
    return json_answer(messages.one(messages.Lock, found))


async def acquire_lock(context: Context, request: Request) -> Answer:
    wanted = await request.json(messages.LockRequest)
    acquiring = context.locks.acquire(
        request.parameters["lock"], wanted.owner, wanted.lease_ms, wanted.wait_ms
    )
    taken = await unless_gone(context, request, acquiring)
    return json_answer(messages.one(messages.Lock, taken))


async def renew_lock(context: Context, request: Request) -> Answer:
    wanted = await request.json(messages.LockRenewal)
    renewed = await context.locks.renew(
        request.parameters["lock"], wanted.owner, wanted.fencing_token, wanted.lease_ms
    )
    return json_answer(messages.one(messages.Lock, renewed))


async def release_lock(context: Context, request: Request) -> Answer:
    wanted = await request.json(messages.LockRelease)
    await context.locks.release(request.parameters["lock"], wanted.owner, wanted.fencing_token)
    return Answer(204)


ROUTES = (
    Route(
        method="GET",
        path="/v1/locks",
        handler=list_locks,
        summary="List the locks that somebody holds.",
        answers={200: messages.Locks},
        problems=(504,),
    ),
    Route(
        method="GET",
        path="/v1/locks/{lock}",
        handler=describe_lock,
        summary="Show who holds a lock, and how many wait for it.",
        answers={200: messages.Lock},
        problems=(404, 504),
    ),
    Route(
        method="POST",
        path="/v1/locks/{lock}/acquire",
        handler=acquire_lock,
        summary="Take a lock, or wait for it in line.",
        help="Answered when it is stored by a majority. A lock that others hold is a conflict.",
        bodies={JSON_TYPE: messages.LockRequest},
        answers={200: messages.Lock},
        problems=(403, 409, 415, 429, 501, 504),
    ),
    Route(
        method="POST",
        path="/v1/locks/{lock}/renew",
        handler=renew_lock,
        summary="Give the lease of a lock its whole time again.",
        help="A conflict says that the lock is lost.",
        bodies={JSON_TYPE: messages.LockRenewal},
        answers={200: messages.Lock},
        problems=(409, 415, 504),
    ),
    Route(
        method="POST",
        path="/v1/locks/{lock}/release",
        handler=release_lock,
        summary="Give a lock back.",
        help="A conflict says that it was lost, or that an earlier request gave it back.",
        bodies={JSON_TYPE: messages.LockRelease},
        answers={204: None},
        problems=(409, 415, 504),
    ),
)
