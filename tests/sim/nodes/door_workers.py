"""Workers that use a queue through doors: each poll is a member of its own, with a lease time of
its own, and what becomes of a record is said by its token."""

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from penstock.broker.doors import queue_calls
from penstock.broker.doors.queue_leaders import UNAVAILABLE, settle_partitions
from penstock.broker.queues import AckType, AcquiredPartition, AcquireQuery, Queues, WantedShare
from penstock.model.ids import MemberId
from penstock.model.lease_tokens import door_member, proof_of
from penstock.queues.settling import Outcome, Verb
from tests.sim.nodes.queues import BREAK_OFF_CHANCE, GROUP, WAIT_MS, Lease, QueueWorker
from tests.sim.replicas.history import require

LEASES_MS = (1_000, 1_500, 3_000)
DELAYS_MS = (None, 0, 300)
# The fastest of clocks.
FAST = 1.06
_VERBS = {
    AckType.ACCEPT: Verb.ACK,
    AckType.GAP: Verb.ACK,
    AckType.RELEASE: Verb.NACK,
    AckType.REJECT: Verb.REJECT,
    AckType.RENEW: Verb.EXTEND,
}


class DoorWorker(QueueWorker):
    def _new_id(self) -> MemberId:
        self._sessions += 1
        return door_member(f"{self._name}-{self._sessions}")

    # Polls

    async def _poll(self, queues: Queues, partition: int, number: int) -> None:
        random, ledger = self._world.random, self._ledger
        self._member_id = member_id = self._new_id()
        lease_ms, asked_at = random.choice(LEASES_MS), self._world.now
        key = ledger.keys[partition]
        wanted = WantedShare(topic_id=key.topic_id, partition=partition, bytes_max=4096)
        records_max = random.choice((1, 3, 20))
        query = AcquireQuery(
            group_id=GROUP,
            member_id=member_id,
            wanted=[wanted],
            wait_ms_max=random.choice(WAIT_MS),
            bytes_min=1,
            bytes_max=4096,
            records_max=records_max,
            batch_size=records_max,
            is_exact=True,
            lease_ms=lease_ms,
            is_only_poll=True,
        )
        if not self.is_hurrying and random.random() < BREAK_OFF_CHANCE:
            self._call_off_later(member_id)
        voids = ledger.voids[partition]
        ledger.unheard[partition] += 1
        answer, content = await self._leased(queues, query)
        if ledger.voids[partition] == voids:
            ledger.unheard[partition] -= 1
        self._take_for(lease_ms, answer, content, member_id, asked_at, number)

    def _take_for(
        self,
        lease_ms: int,
        answer: AcquiredPartition,
        content: bytes,
        member_id: MemberId,
        asked_at: float,
        number: int,
    ) -> None:
        self._take(answer, content, member_id, asked_at, number)
        for first, last, _ in answer.ranges:
            for offset in range(first, last + 1):
                lease = self._ledger.stories[answer.wanted.partition, offset].leases[-1]
                lease.until = asked_at + lease_ms / 1000 / FAST

    def _call_off_later(self, member_id: MemberId) -> None:
        """The client goes away: what the poll leased, or would, was never delivered."""
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None
        self._ledger.close(member_id)
        loop.call_later(self._world.random.uniform(0.0, 0.3), task.cancel)

    # Tokens

    async def _acknowledge(self, queues: Queues, partition: int, _: int) -> None:
        held = sorted(place[1] for place in self._held if place[0] == partition)
        if not held:
            return
        kind = self._word()
        leases = {offset: self._held[partition, offset] for offset in self._some_of(held)}
        lease_ms, asked_at = self._world.random.choice(LEASES_MS), self._world.now
        # Of before it says anything that may end them.
        alive = {offset: lease.until for offset, lease in leases.items() if not lease.is_closed}
        if kind is AckType.RENEW:
            for lease in leases.values():
                lease.until = min(lease.until, asked_at + lease_ms / 1000 / FAST)
        else:
            self._end(partition, kind, leases)
        outcomes = await self._settle(queues, partition, _VERBS[kind], leases, lease_ms)
        good = {offset: lease for offset, lease in leases.items() if outcomes[offset] == "ok"}
        if kind is AckType.RENEW:
            for offset, lease in good.items():
                self._ledger.check_owner(partition, offset, lease, asked_at, self._world.now)
                if not lease.is_ended:
                    lease.until = asked_at + lease_ms / 1000 / FAST
        else:
            self._acknowledged(partition, dict.fromkeys(good, kind), good, asked_at)
        self._check_refused(partition, outcomes, alive)

    def _end(self, partition: int, kind: AckType, leases: Mapping[int, Lease]) -> None:
        for offset, lease in leases.items():
            del self._held[partition, offset]
            lease.is_ended = True
            if kind is not AckType.RELEASE:
                self._ledger.finishing(partition, offset, self._world.now)
            story = self._ledger.stories[partition, offset]
            story.may_be_rejected |= kind is AckType.REJECT
            story.may_be_acked |= kind in (AckType.ACCEPT, AckType.GAP)

    async def _settle(
        self,
        queues: Queues,
        partition: int,
        verb: Verb,
        leases: Mapping[int, Lease],
        lease_ms: int = 0,
    ) -> dict[int, str]:
        claims = [
            queue_calls.Claim(
                partition=partition,
                offset=offset,
                attempt=lease.attempt,
                proof=proof_of(lease.member_id, offset, lease.attempt),
            )
            for offset, lease in leases.items()
        ]
        call = queue_calls.SettlePartitions(
            topic_id=self._ledger.keys[partition].topic_id,
            group=GROUP,
            verb=verb,
            claims=claims,
            lease_ms=lease_ms,
            delay_ms=self._world.random.choice(DELAYS_MS),
        )
        desk: Any = SimpleNamespace(services=SimpleNamespace(queues=queues))
        found = (await settle_partitions(desk, call)).outcomes
        return dict(zip(leases, found, strict=True))

    def _check_refused(
        self, partition: int, outcomes: Mapping[int, str], alive: Mapping[int, float]
    ) -> None:
        """A lease whose time is not over is good, whoever leads by now."""
        for offset, outcome in outcomes.items():
            if outcome in (Outcome.OK, UNAVAILABLE):
                continue
            self._ledger.refused += 1
            self._held.pop((partition, offset), None)
            place = f"{partition}:{offset}"
            require(outcome != Outcome.UNKNOWN, f"{place}: nobody knows of a token that was given")
            is_certain = offset in alive and self._world.now < alive[offset]
            require(not is_certain, f"{place}: a token is {outcome}, and its time is not over")

    async def _close(self, queues: Queues, partition: int, _: int) -> None:
        """What a door could not deliver is undone."""
        held = {place: lease for place, lease in self._held.items() if place[0] == partition}
        leases = {offset: lease for (_, offset), lease in held.items()}
        for place, lease in held.items():
            del self._held[place]
            lease.is_ended = lease.is_closed = True
        if leases:
            await self._settle(queues, partition, Verb.UNDO, leases)
