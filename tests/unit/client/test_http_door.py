"""Whom the HTTP client asks, how often, and what it makes of the answers."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from penstock.client import http_door
from penstock.client.errors import BrokerUnreachable, ClientError
from penstock.client.http_door import HttpDoor, HttpRefused
from penstock.client.registry import ROUNDS, RegistryClient, RegistryRefused

TIMEOUT_S = 5.0
# What a door does with a question: answers it, refuses the connection, or drops it half way.
Answer = tuple[int, object] | Exception
REFUSED = ConnectionRefusedError(111, "Connection refused")
DROPPED = http_door.http.client.BadStatusLine("gone")


class Door:
    """A place that answers from a list; the last answer is repeated."""

    prefix = "/at"

    def __init__(self, name: str, *answers: Answer, log: list[str]) -> None:
        self._name = name
        self._answers = list(answers)
        self._log = log

    def connection(self, timeout_s: float) -> Any:
        assert timeout_s > 0
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        self._log.append(self._name)
        return Connection(answer)


class Connection:
    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.sock = self

    def settimeout(self, timeout_s: float) -> None:
        assert timeout_s > 0

    def connect(self) -> None:
        if self._answer is REFUSED:
            raise REFUSED

    def request(self, method: str, path: str, content: bytes | None, headers: object) -> None:
        assert path.startswith("/at/")

    def getresponse(self) -> "Connection":
        if isinstance(self._answer, Exception):
            raise self._answer
        return self

    @property
    def status(self) -> int:
        assert isinstance(self._answer, tuple)
        return self._answer[0]

    def read(self, limit: int) -> bytes:
        assert isinstance(self._answer, tuple)
        found = self._answer[1]
        return found[:limit] if isinstance(found, bytes) else json.dumps(found).encode()

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_door.time, "sleep", lambda _: None)


def made(
    doors: Sequence[Door],
    *,
    is_repeatable: bool = True,
    rounds: int = 1,
    later: Sequence[Door] = (),
) -> HttpDoor:
    """Finds `doors` at first, and `later` the next time."""
    found: list[Any] = [doors, *([later] if later else [])]

    def find(timeout_s: float) -> Any:
        return found.pop(0) if len(found) > 1 else found[0]

    return HttpDoor(find, name="HTTP door answers", is_repeatable=is_repeatable, rounds=rounds)


def ask(door: HttpDoor) -> Any:
    return door.ask("GET", "/x", None, TIMEOUT_S)


def test_who_answered_last_is_asked_first() -> None:
    log: list[str] = []
    door = made([Door("a", REFUSED, log=log), Door("b", (200, {"n": 1}), log=log)])
    assert (ask(door), ask(door)) == ({"n": 1}, {"n": 1})
    assert log == ["a", "b", "b"]


def test_a_question_that_was_sent_is_asked_elsewhere_only_if_it_may_be_repeated() -> None:
    log: list[str] = []
    doors = [Door("a", DROPPED, log=log), Door("b", (200, {}), log=log)]
    with pytest.raises(BrokerUnreachable, match="not HTTP, or ended early"):
        ask(made(doors, is_repeatable=False))
    assert log == ["a"]
    assert ask(made(doors)) == {}
    assert log == ["a", "a", "b"]


def test_doors_are_looked_up_again_when_all_that_are_known_are_gone() -> None:
    log: list[str] = []
    gone = Door("a", (200, {}), REFUSED, log=log)
    door = made([gone], later=[gone, Door("b", (200, {"n": 2}), log=log)])
    assert (ask(door), ask(door)) == ({}, {"n": 2})
    assert log == ["a", "a", "b"]


def test_a_problem_is_an_error_with_its_reason_and_document() -> None:
    problem = {"detail": "somebody has it", "reason": "lock_held", "results": [1]}
    with pytest.raises(HttpRefused, match="somebody has it") as refused:
        ask(made([Door("a", (409, problem), log=[])]))
    assert (refused.value.status, refused.value.reason) == (409, "lock_held")
    assert (refused.value.document["results"], refused.value.is_passing) == ([1], False)


@pytest.mark.parametrize("answer", [(200, b"<html>"), (301, b""), (500, b"oops"), (400, [1])])
def test_what_is_not_an_answer_of_penstock_is_said_to_be(answer: Answer) -> None:
    with pytest.raises(HttpRefused, match="not as Penstock does") as refused:
        ask(made([Door("a", answer, log=[])]))
    assert refused.value.reason == "unknown"


def test_an_answer_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_door, "ANSWER_BYTES_MAX", 10)
    with pytest.raises(ClientError, match="The answer has more than"):
        ask(made([Door("a", (200, b"x" * 11), log=[])]))


def test_what_may_pass_is_tried_in_rounds() -> None:
    log: list[str] = []
    busy = (503, {"detail": "no leader", "reason": "not_leader"})
    door = made([Door("a", REFUSED, busy, (200, {}), log=log)], rounds=3)
    assert ask(door) == {}
    assert len(log) == 3
    with pytest.raises(HttpRefused, match="no leader"):
        ask(made([Door("a", busy, log=log)], rounds=2))


def test_a_registry_speaks_in_its_own_words() -> None:
    client = RegistryClient("http://127.0.0.1:1/base/")
    log: list[str] = []
    unknown = Door("r", (404, {"error_code": 40403, "message": "Schema 7 not found."}), log=log)
    client._door = made([unknown], rounds=ROUNDS)
    with pytest.raises(RegistryRefused, match="Schema 7 not found") as refused:
        client.schema(7)
    assert (refused.value.status, refused.value.code, len(log)) == (404, 40403, 1)


@pytest.mark.parametrize("url", ["127.0.0.1:9094", "ftp://a", "http://", "http://a:x", ""])
def test_an_address_that_is_not_a_registrys_is_refused(url: str) -> None:
    with pytest.raises(ClientError, match="is not like http"):
        RegistryClient(url)


def test_a_registry_that_nobody_runs_is_named() -> None:
    client = RegistryClient("http://127.0.0.1:1/", timeout_s=0.2)
    with pytest.raises(
        BrokerUnreachable, match=r"No schema registry answers at http://127\S+:1: c"
    ):
        client.versions("a")
