"""Locks over HTTP: what is asked of the broker, and how its answers look."""

from typing import Any

import pytest

from penstock.broker.doors import lock_calls as asked
from penstock.broker.doors.calls import Done
from penstock.model.errors import Reason, Refused
from tests.unit.frontdoor.http.client import JSON, Client

HELD = asked.LockInfo(
    name="a", owner="me", fencing_token=7, lease_ms=30_000, left_ms=20_000, waiters=1
)
SHOWN = {
    "name": "a",
    "owner": "me",
    "fencing_token": 7,
    "lease_ms": 30_000,
    "left_ms": 20_000,
    "waiters": 1,
}


def refuse(reason: Reason) -> Any:
    def answer(_: object) -> Any:
        raise Refused(reason, "it is so")

    return answer


async def test_a_lock_is_taken_renewed_shown_and_given_back() -> None:
    client = Client()
    answers = client.fake.answers
    answers["AcquireLock"] = lambda _: asked.LockOutcome(is_granted=True, lock=HELD)
    answers["RenewLock"] = lambda _: HELD
    answers["ReleaseLock"] = lambda _: Done()
    answers["DescribeLock"] = lambda call: asked.FoundLock(lock=HELD if call.name == "a" else None)
    answers["ListLocks"] = lambda _: asked.LockList(locks=[HELD])

    taken = await client.ask("POST", "/v1/locks/a/acquire", {"owner": "me"}, JSON)
    assert (taken.status, taken.json()) == (200, SHOWN)
    assert client.fake.asked == [asked.AcquireLock(name="a", owner="me", lease_ms=30_000)]
    token = {"owner": "me", "fencing_token": 7}
    renewed = await client.ask("POST", "/v1/locks/a/renew", token, JSON)
    assert (renewed.status, renewed.json()) == (200, SHOWN)
    assert (await client.ask("POST", "/v1/locks/a/release", token, JSON)).status == 204
    assert client.fake.asked[-1] == asked.ReleaseLock(name="a", owner="me", fencing_token=7)
    assert (await client.ask("GET", "/v1/locks")).json() == {"locks": [SHOWN]}
    assert (await client.ask("GET", "/v1/locks/a")).json() == SHOWN
    free = await client.ask("GET", "/v1/locks/b")
    assert (free.status, free.json()["reason"]) == (404, "lock_not_held")


async def test_a_long_wait_is_made_of_short_ones() -> None:
    client = Client()
    outcomes = [
        asked.LockOutcome(is_granted=False, lock=HELD),
        asked.LockOutcome(is_granted=False),
        asked.LockOutcome(is_granted=True, lock=HELD),
    ]
    client.fake.answers["AcquireLock"] = lambda _: outcomes.pop(0)
    wanted = {"owner": "me", "lease_ms": 5_000, "wait_ms": 600_000}
    assert (await client.ask("POST", "/v1/locks/a/acquire", wanted, JSON)).status == 200
    assert [call.wait_s for call in client.fake.asked] == [3.0] * 3  # type: ignore[attr-defined]


async def test_what_can_not_be_had_is_a_conflict() -> None:
    client = Client()
    answers = client.fake.answers
    answers["AcquireLock"] = lambda _: asked.LockOutcome(is_granted=False, lock=HELD)
    held = await client.ask("POST", "/v1/locks/a/acquire", {"owner": "you"}, JSON)
    assert (held.status, held.json()["reason"]) == (409, "lock_held")
    assert "held by 'me' with token 7" in held.json()["detail"]
    answers["AcquireLock"] = lambda _: asked.LockOutcome(is_granted=False)
    held = await client.ask("POST", "/v1/locks/a/acquire", {"owner": "you"}, JSON)
    assert "Others wait" in held.json()["detail"]
    answers["RenewLock"] = answers["ReleaseLock"] = refuse(Reason.LOCK_NOT_HELD)
    for action in ("renew", "release"):
        token = {"owner": "me", "fencing_token": 6}
        lost = await client.ask("POST", f"/v1/locks/a/{action}", token, JSON)
        assert (lost.status, lost.json()["reason"]) == (409, "lock_not_held")


@pytest.mark.parametrize(
    ("action", "body"),
    [
        ("acquire", {}),
        ("acquire", {"owner": ""}),
        ("acquire", {"owner": "me", "lease_ms": 999}),
        ("acquire", {"owner": "me", "lease_ms": 12 * 3_600_000 + 1}),
        ("acquire", {"owner": "me", "wait_ms": -1}),
        ("acquire", {"owner": "me", "wait_ms": 600_001}),
        ("acquire", {"owner": "me", "lease": 5_000}),
        ("acquire", {"owner": "x" * 201}),
        ("renew", {"owner": "me"}),
        ("renew", {"owner": "me", "fencing_token": 0}),
        ("release", {"fencing_token": 1}),
        ("release", {"owner": "me", "fencing_token": "1"}),
    ],
)
async def test_bad_bodies_reach_nobody(action: str, body: dict[str, Any]) -> None:
    client = Client()
    response = await client.ask("POST", f"/v1/locks/a/{action}", body, JSON)
    assert response.status == 400
    assert not client.fake.asked
