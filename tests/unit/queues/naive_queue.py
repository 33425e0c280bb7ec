"""A share partition as simple as can be: one entry per offset, and loops over all of them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from penstock.model.errors import Reason
from penstock.model.ids import MemberId
from penstock.model.lease_tokens import proof_of
from penstock.queues.commands import (
    AckBatch,
    AcquiredRange,
    Death,
    Range,
    RecordState,
    ShareSettings,
)
from penstock.queues.settling import Claim, Outcome, Verb

AVAILABLE, LEASED = RecordState.AVAILABLE, RecordState.LEASED
ACKED, DEAD = RecordState.ACKED, RecordState.DEAD
DELAYED, DYING = RecordState.DELAYED, RecordState.DYING


class Entry(NamedTuple):
    state: RecordState
    attempts: int
    member_id: MemberId | None = None
    lease_ms: int = 0
    due_ms: int = 0
    death: Death = Death.NONE
    redrives: int = 0


NEW = Entry(AVAILABLE, 0)
GONE = Entry(ACKED, 0)


class NaiveQueue:
    def __init__(self, settings: ShareSettings) -> None:
        self.settings = settings
        # Of the fetch that leases just now.
        self.lease_ms = 0
        # Of records that have one, in a queue with order per key.
        self.keys: dict[int, int] = {}
        self.start = 0
        self.end = 0
        self.entries: dict[int, Entry] = {}
        # Dying records below the start.
        self.left: dict[int, Entry] = {}
        self.lost = 0

    def count(self, *states: RecordState) -> int:
        return sum(entry.state in states for entry in self.entries.values())

    def first_available(self) -> int:
        return min((offset for offset in self.entries if self.is_free(offset)), default=self.end)

    def is_free(self, offset: int) -> bool:
        """Whether it can be delivered now."""
        return self.entries[offset].state is AVAILABLE and not self.is_blocked(offset)

    def is_blocked(self, offset: int) -> bool:
        """Whether an earlier record of its key is not done with."""
        key = self.keys.get(offset)
        return key is not None and any(
            self.keys.get(other) == key and entry.state not in (ACKED, DYING, DEAD)
            for other, entry in self.entries.items()
            if other < offset
        )

    def is_waiting(self, offset: int) -> bool:
        """Whether it could be delivered if it were the first of its key."""
        return self.entries[offset].state is AVAILABLE and self.is_blocked(offset)

    def count_blocked(self) -> int:
        return sum(map(self.is_waiting, self.entries))

    def has_space(self) -> bool:
        waiting = self._waiting() + self.count(DELAYED, DYING) + len(self.left)
        is_full = waiting >= self.settings.waiting_max
        return not is_full and self.count_blocked() < self.settings.blocked_max

    def look(
        self,
        spans: Sequence[tuple[int, int]],
        due: Mapping[int, int],
        keys: Mapping[int, int],
    ) -> None:
        for first, last in spans:
            while self.end < first:
                self.entries[self.end] = GONE
                self.end += 1
            while self.end <= last:
                due_ms = due.get(self.end, 0)
                self.entries[self.end] = Entry(DELAYED, 0, due_ms=due_ms) if due_ms else NEW
                if self.end in keys:
                    self.keys[self.end] = keys[self.end]
                self.end += 1
        self._advance()

    def acquire(
        self,
        member_id: MemberId,
        spans: Sequence[tuple[int, int]],
        read_from: int,
        records_max: int,
        batch_size: int,
        is_exact: bool,
        lease_ms: int,
    ) -> list[AcquiredRange]:
        self.lease_ms = lease_ms
        limit = self.settings.delivery_attempts_max
        throttle = max(2, (limit + 1) // 2)
        room = min(records_max, self.settings.leased_max - self.count(LEASED))
        has_space = self.has_space()
        old_end = self.end
        was_free = {offset for offset in self.entries if self.is_free(offset)}
        known = [
            [offset for offset in range(first, last + 1) if self.start <= offset < old_end]
            for first, last in spans
        ]
        new = [
            [offset for offset in range(first, last + 1) if offset >= max(self.start, old_end)]
            for first, last in spans
        ]
        self._forget_missing(spans, read_from)
        # One fetch gets one record of a key at most, even if another one is gone from the log.
        free = {offset for offset in self.entries if self.is_free(offset)} & was_free
        taken: list[tuple[int, int, int]] = []
        for number, group in enumerate(_grouped([one for one in known if one], batch_size)):
            before = len(taken)
            if before >= room:
                break
            allowed: int | None = None
            is_over = False
            for offset in [offset for one in group for offset in one]:
                entry = self.entries[offset]
                if offset not in free:
                    continue
                got = len(taken) - before
                if entry.attempts >= throttle and allowed is None:
                    if before:
                        is_over = True
                        break
                    size = sum(len(one) for one in group)
                    allowed = max(1, size // 2 ** (entry.attempts - throttle + 1))
                is_last = limit > 2 and entry.attempts == limit - 1
                if is_last and taken:
                    break
                if allowed is not None and got >= allowed:
                    break
                if is_exact and len(taken) >= room:
                    break
                self._lease(offset, member_id)
                taken.append((offset, entry.attempts + 1, number))
                if is_last:
                    break
            if is_over or allowed is not None:
                has_space = False
                break
        if has_space and len(taken) < room:
            groups = [[one for one in new if one]] if is_exact else None
            fresh = groups or _grouped([one for one in new if one], batch_size)
            self._acquire_new(member_id, fresh, room, is_exact, taken)
        self._advance()
        return _ranges(taken)

    def _acquire_new(
        self,
        member_id: MemberId,
        groups: list[list[list[int]]],
        room: int,
        is_exact: bool,
        taken: list[tuple[int, int, int]],
    ) -> None:
        for number, group in enumerate(groups):
            for batch in group:
                if len(taken) >= room:
                    return
                for offset in range(self.end, batch[0]):
                    self.entries[offset] = GONE
                for offset in batch:
                    self.entries[offset] = NEW
                    if not is_exact or len(taken) < room:
                        self._lease(offset, member_id)
                        taken.append((offset, 1, -1 - number))
                self.end = batch[-1] + 1

    def _lease(self, offset: int, member_id: MemberId) -> None:
        before = self.entries[offset]
        self.entries[offset] = before._replace(
            state=LEASED,
            attempts=before.attempts + 1,
            member_id=member_id,
            lease_ms=self.lease_ms,
        )

    def _forget_missing(self, spans: Sequence[tuple[int, int]], read_from: int) -> None:
        if not spans:
            return
        free = {offset for offset in self.entries if self.is_free(offset)}
        present = {offset for first, last in spans for offset in range(first, last + 1)}
        for offset in range(read_from, spans[-1][1]):
            entry = self.entries.get(offset)
            if offset not in present and entry is not None and offset in free:
                self.entries[offset] = GONE

    def acknowledge(
        self, member_id: MemberId, batches: Sequence[AckBatch], due_ms: int
    ) -> Reason | None:
        said: dict[int, int] = {}
        if not _is_well_formed(batches):
            return Reason.INVALID_REQUEST
        for batch in batches:
            if batch.last < self.start:
                continue
            if not self.entries:
                return Reason.INVALID_RECORD_STATE
            if batch.last >= self.end:
                return Reason.INVALID_REQUEST
            for index, offset in enumerate(range(batch.first, batch.last + 1)):
                kind = batch.types[index if len(batch.types) > 1 else 0]
                if offset < self.start:
                    continue
                entry = self.entries[offset]
                is_mine = entry.state is LEASED and entry.member_id == member_id
                if not is_mine or offset in said:
                    return Reason.INVALID_RECORD_STATE
                if kind == 4 and not self.settings.is_renewable:
                    return Reason.INVALID_RECORD_STATE
                said[offset] = kind
        for offset, kind in said.items():
            self._settle(offset, kind, due_ms)
        self._advance()
        return None

    def _settle(self, offset: int, kind: int, due_ms: int) -> None:
        entry = self.entries[offset]
        if kind == 4:
            self.entries[offset] = entry._replace(lease_ms=self.settings.lease_ms)
        elif kind == 2:
            self._give_back(offset, due_ms)
        elif kind == 3:
            self._give_up(offset, Death.REJECTED)
        else:
            self.entries[offset] = Entry(ACKED, entry.attempts)

    def _give_back(self, offset: int, due_ms: int = 0) -> None:
        entry = self.entries[offset]
        attempts, times = entry.attempts, entry.redrives
        if attempts >= self.settings.delivery_attempts_max:
            self._give_up(offset, Death.TRIED_TOO_OFTEN)
        elif due_ms:
            self.entries[offset] = Entry(DELAYED, attempts, due_ms=due_ms, redrives=times)
        else:
            self.entries[offset] = Entry(AVAILABLE, attempts, redrives=times)

    def _give_up(self, offset: int, death: Death) -> None:
        entry = self.entries[offset]
        dying = Entry(DYING, entry.attempts, death=death, redrives=entry.redrives)
        dead = Entry(DEAD, entry.attempts)
        self.entries[offset] = dying if self.settings.has_dead_letters else dead

    def settle(
        self, verb: Verb, claims: Sequence[Claim], lease_ms: int, due_ms: int
    ) -> list[Outcome]:
        """By tokens, each with an outcome of its own: all are judged before the first is done."""
        outcomes = [self._judge(verb, claim) for claim in claims]
        good = {
            claim.offset for claim, found in zip(claims, outcomes, strict=True) if found == "ok"
        }
        for offset in sorted(good):
            entry = self.entries[offset]
            if verb is Verb.EXTEND:
                self.entries[offset] = entry._replace(lease_ms=lease_ms)
            elif verb is Verb.UNDO:
                self._undo(offset)
            else:
                self._settle(offset, {Verb.ACK: 1, Verb.NACK: 2, Verb.REJECT: 3}[verb], due_ms)
        self._advance()
        return outcomes

    def _judge(self, verb: Verb, claim: Claim) -> Outcome:
        entry = self.entries.get(claim.offset)
        if claim.offset < self.start or (entry and entry.state in (ACKED, DEAD, DYING)):
            return Outcome.DONE
        if entry is None:
            return Outcome.UNKNOWN
        if entry.state is LEASED and entry.attempts == claim.attempt:
            name = entry.member_id or ""
            right = proof_of(MemberId(name), claim.offset, claim.attempt)
            if not name.startswith("door:") or right != claim.proof:
                return Outcome.UNKNOWN
            is_refused = verb is Verb.EXTEND and not self.settings.is_renewable
            return Outcome.FORBIDDEN if is_refused else Outcome.OK
        is_old = entry.attempts >= claim.attempt or entry.redrives > 0
        return Outcome.EXPIRED if is_old else Outcome.UNKNOWN

    def _undo(self, offset: int) -> None:
        entry = self.entries[offset]
        self.entries[offset] = Entry(AVAILABLE, entry.attempts - 1, redrives=entry.redrives)

    def undo(self, member_id: MemberId, acquired: Sequence[AcquiredRange] | None) -> None:
        for offset, entry in self.entries.items():
            is_meant = acquired is None or any(
                each.first <= offset <= each.last and each.attempt == entry.attempts
                for each in acquired
            )
            if entry.state is LEASED and entry.member_id == member_id and is_meant:
                self._undo(offset)

    def outdate(self, spans: Sequence[tuple[int, int]]) -> int:
        """What nobody has, and is too old, whether or not it waits for another one of its key."""
        old = {at for first, last in spans for at in range(first, last + 1)}
        found = [at for at in self.entries if at in old and self.entries[at].state is AVAILABLE]
        for offset in found:
            self._give_up(offset, Death.EXPIRED)
            if not self.settings.keeps_expired:
                self.entries[offset] = Entry(DEAD, self.entries[offset].attempts)
        self._advance()
        return len(found)

    def purge(self, end: int) -> None:
        for offset in range(self.start, max(end, self.end)):
            if offset >= self.end or (
                offset < end and self.entries[offset].state in (AVAILABLE, DELAYED)
            ):
                self.entries[offset] = GONE
        self.end = max(end, self.end)
        self._advance()

    def pass_time(self, now_ms: int) -> None:
        for offset, entry in self.entries.items():
            if entry.state is DELAYED and entry.due_ms <= now_ms:
                self.entries[offset] = Entry(AVAILABLE, entry.attempts, redrives=entry.redrives)

    def reopen(self, redrives: dict[int, int]) -> int:
        """Below the start only what is known to be dead is named."""
        back = [
            offset
            for offset in sorted(redrives)
            if offset not in self.left and self._is_dead(offset)
        ]
        for offset in reversed(back):
            for filled in range(offset, self.start):
                self.entries[filled] = self.left.pop(filled, Entry(DEAD, 0))
            self.start = min(self.start, offset)
            self.entries[offset] = Entry(AVAILABLE, 0, redrives=redrives[offset] + 1)
            # Later ones of its key have passed it.
            self.keys.pop(offset, None)
        return len(back)

    def _is_dead(self, offset: int) -> bool:
        if offset >= self.start:
            return offset < self.end and self.entries[offset].state is DEAD
        return True

    def bury(self, offsets: Iterable[int]) -> None:
        for offset in offsets:
            self.left.pop(offset, None)
            entry = self.entries.get(offset)
            if entry is not None and entry.state is DYING:
                self.entries[offset] = Entry(DEAD, entry.attempts)
        self._advance()

    def release(self, member_id: MemberId) -> None:
        for offset, entry in self.entries.items():
            if entry.state is LEASED and entry.member_id == member_id:
                self._give_back(offset)
        self._advance()

    def expire(self, leases: Iterable[Range]) -> None:
        for lease in leases:
            for offset in range(lease.first, lease.last + 1):
                entry = self.entries.get(offset)
                said = (LEASED, lease.attempts, lease.member_id)
                if entry is not None and entry[:3] == said:
                    self._give_back(offset)
        self._advance()

    def move_log_start(self, log_start: int) -> None:
        for offset in range(self.start, log_start):
            entry = self.entries.pop(offset, NEW)
            self.lost += entry.state not in (ACKED, DEAD, DYING)
            if entry.state is DYING:
                self.left[offset] = entry
        self.start = max(self.start, log_start)
        self.end = max(self.start, self.end)
        self._advance()

    def _advance(self) -> None:
        while self.entries and self.entries[self.start].state in (ACKED, DEAD, DYING):
            entry = self.entries.pop(self.start)
            if entry.state is DYING:
                self.left[self.start] = entry
            self.start += 1

    def _waiting(self) -> int:
        done = (entry for entry in self.entries.values() if entry.state in (ACKED, DEAD))
        return sum(entry.attempts > 0 for entry in done)


def _grouped(batches: list[list[int]], batch_size: int) -> list[list[list[int]]]:
    groups: list[list[list[int]]] = []
    for batch in batches:
        if groups and batch[0] - groups[-1][0][0] < batch_size:
            groups[-1].append(batch)
        else:
            groups.append([batch])
    return groups


def _ranges(taken: list[tuple[int, int, int]]) -> list[AcquiredRange]:
    result: list[tuple[AcquiredRange, int]] = []
    for offset, attempt, group in taken:
        last, last_group = result[-1] if result else (AcquiredRange(-9, -9, 0), -9)
        if last.last + 1 == offset and last.attempt == attempt and last_group == group:
            result[-1] = last._replace(last=offset), group
        else:
            result.append((AcquiredRange(offset, offset, attempt), group))
    return [one for one, _ in result]


def _is_well_formed(batches: Sequence[AckBatch]) -> bool:
    ends = [-1, *(batch.last for batch in batches)]
    return all(
        batch.first <= batch.last
        and batch.first >= before
        and len(batch.types) in (1, batch.last - batch.first + 1)
        and all(kind in range(5) for kind in batch.types)
        for before, batch in zip(ends, batches, strict=False)
    )
