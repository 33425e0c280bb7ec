"""Proves that one commit answers all who wait for it, whatever one of them does."""

import asyncio

import pytest

from penstock.model.errors import Reason, Refused
from penstock.replication.commit import Commit


def test_all_waiters_hear_of_it_once_and_in_order() -> None:
    heard: list[tuple[str, Refused | None]] = []
    commit = Commit()
    commit.then(lambda error: heard.append(("first", error)))
    commit.then(lambda error: heard.append(("second", error)))
    commit.settle(None)
    commit.then(lambda error: heard.append(("late", error)))
    assert heard == [("first", None), ("second", None), ("late", None)]


async def test_a_waiter_with_a_bug_does_not_keep_it_from_the_others() -> None:
    reported: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
    heard: list[Refused | None] = []
    commit = Commit()
    commit.then(lambda _: 1 / 0)  # type: ignore[arg-type]
    commit.then(heard.append)
    commit.settle(None)
    assert heard == [None]
    assert isinstance(reported[0], ZeroDivisionError)


async def test_it_can_be_awaited_before_and_after_it_is_settled() -> None:
    commit = Commit()
    asyncio.get_running_loop().call_soon(commit.settle, None)
    await commit
    await commit
    failed = Commit()
    failed.settle(Refused(Reason.STORAGE_ERROR, "full"))
    with pytest.raises(Refused, match="full"):
        await failed
