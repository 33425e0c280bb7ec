"""Locks: taking one may wait, all else is as the broker answers it."""

from penstock.broker.doors import lock_calls
from penstock.frontdoor.grpc import messages
from penstock.frontdoor.grpc.context import Call, Context
from penstock.frontdoor.grpc.methods import Methods
from penstock.frontdoor.grpc.plain import plain
from penstock.frontdoor.grpc.statuses import invalid
from penstock.frontdoor.grpc.translation import to_message
from penstock.frontdoor.remote.locks import LEASE_MS, WAIT_MS_MAX


async def acquire(
    context: Context, request: messages.AcquireLockRequest, call: Call
) -> messages.LockInfo:
    if not 0 <= request.wait_ms <= WAIT_MS_MAX:
        raise invalid("wait_ms", f"It must be 0 to {WAIT_MS_MAX:,}.")
    taking = context.parts.locks.acquire(
        request.name,
        request.owner,
        request.lease_ms if request.HasField("lease_ms") else LEASE_MS,
        int(1000 * call.bounded_s(request.wait_ms / 1000)),
    )
    return to_message(messages.LockInfo, await context.unless_stopping(taking))


METHODS: Methods = {
    "AcquireLock": acquire,
    "RenewLock": plain(lock_calls.RenewLock, messages.LockInfo),
    "ReleaseLock": plain(lock_calls.ReleaseLock, messages.Done),
    "DescribeLock": plain(lock_calls.DescribeLock, messages.FoundLock),
    "ListLocks": plain(lock_calls.ListLocks, messages.LockList),
}
