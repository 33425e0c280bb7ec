"""A registry without I/O: decisions are driven at once, and their records are kept."""

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from penstock.registry import answers, decisions
from penstock.registry.decisions import Change, Deciding, Request
from penstock.registry.records import Entry, decode, encode
from penstock.registry.schemas import Reference
from penstock.registry.state import State

T = TypeVar("T")


def driven(deciding: Deciding[T]) -> T:
    result: Any = None
    while True:
        try:
            work = deciding.send(result)
        except StopIteration as done:
            decided: T = done.value
            return decided
        result = work()


class Rig:
    def __init__(self) -> None:
        self.state = State()
        self.log: list[Entry] = []

    def change(self, decided: Change | Deciding[Change]) -> Any:
        change = decided if isinstance(decided, Change) else driven(decided)
        for entry in change.entries:
            # As bytes, so that nothing survives that is not written.
            self.state.apply(decode(*encode(entry)), len(self.log))
            self.log.append(entry)
        return change.answer

    def register(
        self,
        subject: str,
        schema: Any,
        kind: str | None = None,
        references: Sequence[Reference] = (),
        *,
        normalize: bool = False,
        **others: Any,
    ) -> int:
        """The id."""
        wanted = request(schema, kind, references, **others)
        answer = self.change(decisions.register(self.state, subject, wanted, normalize=normalize))
        return int(answer.id)

    def fits(self, subject: str, schema: Any, kind: str | None = None) -> list[str]:
        """Why a schema can't be the next version; empty if it can."""
        checked = driven(
            answers.check(
                self.state, subject, None, request(schema, kind), normalize=False, verbose=True
            )
        )
        messages: list[str] = checked["messages"]
        assert checked["is_compatible"] is not messages
        return messages

    def do(self, decide: Callable[..., Change], *arguments: Any, **options: Any) -> Any:
        return self.change(decide(self.state, *arguments, **options))

    def replayed(self) -> State:
        state = State()
        for offset, entry in enumerate(self.log):
            state.apply(decode(*encode(entry)), offset)
        return state

    def compacted(self) -> State:
        """As after a restart, when only the last record of each key is left."""
        last = {encode(entry)[0]: offset for offset, entry in enumerate(self.log)}
        state = State()
        for offset, entry in enumerate(self.log):
            if last[encode(entry)[0]] == offset:
                state.apply(decode(*encode(entry)), offset)
        return state


def request(
    schema: Any, kind: str | None = None, references: Sequence[Reference] = (), **others: Any
) -> Request:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return Request(schema=text, schemaType=kind, references=list(references), **others)


def record(*fields: Any, name: str = "R") -> dict[str, Any]:
    """Fields as (name, type) or (name, type, default)."""
    made = [
        {"name": each[0], "type": each[1]} | ({"default": each[2]} if len(each) > 2 else {})
        for each in fields
    ]
    return {"type": "record", "name": name, "fields": made}
