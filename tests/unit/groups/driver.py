"""Drives one group by hand: carries out its effects on a clock that only moves when told to."""

import struct
from collections.abc import Mapping
from dataclasses import replace

from penstock.groups.commands import (
    Departure,
    Join,
    JoinAnswer,
    MemberProtocol,
    Sync,
    SyncAnswer,
)
from penstock.groups.effects import Answer, CancelTimer, Effect, SetTimer, Store, Ticket, Timer
from penstock.groups.group import Group
from penstock.groups.settings import GroupSettings
from penstock.model.errors import Reason
from penstock.model.ids import GroupId, MemberId
from penstock.replication.deadlines import Deadlines

SESSION_MS = 10_000
REBALANCE_MS = 30_000
GROUP = GroupId("readers")


class FakeClock:
    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000


def subscription(*topics: str, user_data: bytes = b"") -> bytes:
    """A consumer's metadata, version 0: a version, the topics, and data of its assignor."""
    names = [topic.encode() for topic in topics]
    parts = [struct.pack(">hi", 0, len(names))]
    parts += [struct.pack(">h", len(name)) + name for name in names]
    parts.append(struct.pack(">i", len(user_data)) + user_data)
    return b"".join(parts)


def join_command(**changes: object) -> Join:
    command = Join(
        group_id=GROUP,
        client_id="client",
        client_host="/127.0.0.1",
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=REBALANCE_MS,
        protocol_type="consumer",
        protocols=(MemberProtocol("range", subscription("t")),),
        takes_member_id=False,
    )
    return replace(command, **changes)  # type: ignore[arg-type]


class Driver:
    """A ticket is a number; `answers` has those that were answered."""

    def __init__(self, group: Group | None = None, **settings: int) -> None:
        self.clock = FakeClock()
        self.settings = GroupSettings(**settings)
        self.group = group or Group(GROUP, settings=self.settings, clock=self.clock)
        self.answers: dict[int, JoinAnswer | SyncAnswer] = {}
        self.stores: list[Store] = []
        self.deadlines: Deadlines[tuple[Timer, MemberId]] = Deadlines()
        self._tickets = 0
        self._members = 0

    def perform(self, effects: list[Effect]) -> None:
        self.group.validate()
        for effect in effects:
            if isinstance(effect, Answer):
                ticket = effect.ticket
                assert isinstance(ticket, int)
                assert ticket not in self.answers, "answered twice"
                self.answers[ticket] = effect.answer
            elif isinstance(effect, SetTimer):
                at = self.clock.monotonic() + effect.delay_ms / 1000
                self.deadlines.set((effect.timer, effect.member_id), at)
            elif isinstance(effect, CancelTimer):
                self.deadlines.cancel((effect.timer, effect.member_id))
            else:
                self.stores.append(effect)

    def advance(self, duration_ms: int) -> None:
        """Fires what is due on the way, each at its moment."""
        end = self.clock.ms + duration_ms
        while (at := self.deadlines.next_at()) is not None and at * 1000 <= end:
            self.clock.ms = max(self.clock.ms, round(at * 1000))
            while (key := self.deadlines.pop_due(at)) is not None:
                self.perform(self.group.expire(*key))
        self.clock.ms = end

    # Requests

    def join(self, **changes: object) -> int:
        self._tickets += 1
        self._members += 1
        command = join_command(**changes)
        new_id = MemberId(f"member-{self._members}")
        self.perform(self.group.join(command, Ticket(self._tickets), new_id))
        return self._tickets

    def sync(
        self,
        member_id: MemberId,
        assignments: Mapping[str, bytes] | None = None,
        *,
        generation: int | None = None,
        **fields: str | None,
    ) -> int:
        self._tickets += 1
        command = Sync(
            group_id=GROUP,
            member_id=member_id,
            generation=self.group.generation if generation is None else generation,
            assignments=assignments or {},
        )
        command = replace(command, **fields)  # type: ignore[arg-type]
        self.perform(self.group.sync(command, Ticket(self._tickets)))
        return self._tickets

    def heartbeat(self, member_id: MemberId) -> None:
        session_ms = self.group.heartbeat(member_id, None, self.group.generation)
        at = self.clock.monotonic() + session_ms / 1000
        self.deadlines.set((Timer.SESSION, member_id), at)

    def leave(self, *departures: Departure) -> list[Reason | None]:
        outcomes, effects = self.group.leave(list(departures))
        self.perform(effects)
        return outcomes

    def store(self, refused: Reason | None = None) -> None:
        """Ends every write that is under way."""
        stores, self.stores = self.stores, []
        for store in stores:
            self.perform(self.group.stored(store, refused))

    # What was answered

    def joined(self, ticket: int) -> JoinAnswer:
        answer = self.answers[ticket]
        assert isinstance(answer, JoinAnswer)
        return answer

    def synced(self, ticket: int) -> SyncAnswer:
        answer = self.answers[ticket]
        assert isinstance(answer, SyncAnswer)
        return answer

    # Shortcuts into the states

    def stable(self, *joins: dict[str, object]) -> list[MemberId]:
        """A stable group of members with these properties; the first one leads."""
        tickets = [self.join(**changes) for changes in joins]
        self.advance(self.settings.initial_rebalance_delay_ms * (len(joins) + 1))
        members = [self.joined(ticket).member_id for ticket in tickets]
        assignments = {str(m): f"assigned {n}".encode() for n, m in enumerate(members)}
        for member_id in reversed(members):
            self.sync(member_id, assignments)
        self.store()
        return members
