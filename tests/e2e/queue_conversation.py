"""What is said to a broker about queues: good and bad requests by hand, then at random."""

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from penstock.protocol.kafka.messages.share_fetch import BATCH_OPTIMIZED, RECORD_LIMIT
from tests.e2e.queue_session import (
    ACCEPT,
    FINAL,
    GAP,
    OPEN,
    REJECT,
    RELEASE,
    RENEW,
    SHORT_WAIT_MS,
    Acks,
    Said,
    Share,
)
from tests.waiting import wait_until

T = ("t", 0)
MEMBERS = ("a", "b")
# The part of its records that a member acknowledges at a time.
CHOSEN = 0.6
# What a fetch releases on its way, Kafka may or may not deliver with the same answer.
FINAL_TYPES = (ACCEPT, ACCEPT, ACCEPT, REJECT)
TYPES = (*FINAL_TYPES, RELEASE)
LOCKS_GONE_S = 60.0
SHORT = {"wait_ms": SHORT_WAIT_MS}


def converse(s: Share, seeds: tuple[int, ...]) -> list[Said]:
    for part in (
        sessions,
        bad_fetches,
        leases,
        bad_acknowledgements,
        acknowledgements_beside_fetches,
        renewals,
        attempts,
        whole_batches,
        ends_of_sessions,
        several_partitions,
        offsets,
        strangers,
    ):
        part(s)
    for seed in seeds:
        at_random(s, seed)
    return s.said


def group_with(s: Share, group: str, records: int, *members: str, **settings: str) -> None:
    """A topic of its own with this many records in batches of one, read from its start."""
    s.topic("t")
    for number in range(records):
        s.produce("t", [f"v{number}"])
    s.configure(group, share_auto_offset_reset="earliest", **settings)
    for member in members:
        s.join(group, member, "t")


def sessions(s: Share) -> None:
    g = "g-sessions"
    group_with(s, g, 3, "a")
    s.fetch("no session", g, "a", epoch=5)
    s.fetch("close no session", g, "a", epoch=FINAL)
    s.acknowledge("no session", g, "a", {T: [(0, 0, [ACCEPT])]}, epoch=1)
    s.fetch("empty", g, "a", epoch=OPEN)
    s.fetch("next", g, "a", [T])
    s.fetch("nothing more", g, "a", **SHORT)
    for epoch in (1, 99, -2):
        s.fetch(f"epoch {epoch}", g, "a", epoch=epoch)
        s.acknowledge(f"epoch {epoch}", g, "a", {T: [(0, 0, [ACCEPT])]}, epoch=epoch)
    s.acknowledge("epoch 0", g, "a", {T: [(0, 0, [ACCEPT])]}, epoch=OPEN)
    s.acknowledge("goes on", g, "a", {T: [(0, 0, [ACCEPT])]})
    s.fetch("goes on", g, "a", over="another connection", **SHORT)
    s.fetch("again from the start", g, "a", [T], epoch=OPEN, **SHORT)
    s.fetch("of the new session", g, "a", **SHORT)
    s.fetch("close", g, "a", epoch=FINAL)
    s.fetch("close twice", g, "a", epoch=FINAL)
    s.fetch("closed", g, "a", epoch=3)


def bad_fetches(s: Share) -> None:
    g = "g-bad"
    group_with(s, g, 3, "a")
    s.fetch("acknowledges at once", g, "a", acks={T: [(0, 0, [ACCEPT])]})
    odd_ids: list[dict[str, Any]] = [{"group_id": None}]
    odd_ids += [{"member_id": member_id} for member_id in (None, "", "m" * 37)]
    for odd in odd_ids:
        s.fetch(f"odd {odd}", g, "a", [T], **odd)
        s.acknowledge(f"odd {odd}", g, "a", {T: [(0, 0, [ACCEPT])]}, **odd)
    s.fetch("unknown partition", g, "a", [("t", 7)], **SHORT)
    s.fetch("still unknown", g, "a", **SHORT)
    s.fetch("forget it, and one that is not there", g, "a", forgotten=[("t", 7), ("t", 8)], **SHORT)
    s.fetch("no records", g, "a", [T], records=0, **SHORT)
    s.fetch("no bytes", g, "a", bytes_max=0, **SHORT)
    s.fetch("fewer than no records", g, "a", records=-1, **SHORT)
    s.fetch("no batch size", g, "a", batch=0)
    s.fetch("no time", g, "a", wait_ms=-1)


def leases(s: Share) -> None:
    g = "g-leases"
    group_with(s, g, 12, "a", "b")
    s.fetch("three", g, "a", [T], records=3, mode=RECORD_LIMIT)
    s.fetch("two", g, "b", [T], records=2, mode=RECORD_LIMIT)
    s.acknowledge("another's", g, "b", {T: [(0, 0, [ACCEPT])]})
    s.acknowledge("partly another's", g, "a", {T: [(2, 3, [ACCEPT])]})
    s.acknowledge("nobody's", g, "a", {T: [(5, 5, [ACCEPT])]})
    s.acknowledge("beyond the log", g, "a", {T: [(100, 120, [ACCEPT])]})
    s.acknowledge("partly nobody's", g, "b", {T: [(4, 5, [ACCEPT])]})
    s.acknowledge("release", g, "a", {T: [(1, 1, [RELEASE])]})
    s.acknowledge("accept what is released", g, "a", {T: [(1, 1, [ACCEPT])]})
    s.acknowledge("gap", g, "a", {T: [(2, 2, [GAP])]})
    s.acknowledge("accept a gap", g, "a", {T: [(2, 2, [ACCEPT])]})
    s.acknowledge("one type each", g, "b", {T: [(3, 4, [ACCEPT, REJECT])]})
    s.acknowledge("accept what is rejected", g, "b", {T: [(4, 4, [ACCEPT])]})
    s.acknowledge("accept", g, "a", {T: [(0, 0, [ACCEPT])]})
    s.acknowledge("accept twice, below the start", g, "a", {T: [(0, 0, [ACCEPT])]})
    s.acknowledge("partly below the start", g, "a", {T: [(0, 1, [ACCEPT])]})
    s.fetch("the released one and more", g, "b", records=4, mode=RECORD_LIMIT)
    s.acknowledge("from below the start", g, "b", {T: [(0, 1, [ACCEPT])]})
    s.fetch("the rest", g, "a")
    s.fetch("nothing", g, "b", **SHORT)
    s.acknowledge("done", g, "a", everything(s, g, "a", ACCEPT))
    s.acknowledge("done", g, "b", everything(s, g, "b", ACCEPT))
    s.describe(g)


def bad_acknowledgements(s: Share) -> None:
    g = "g-bad-acks"
    group_with(s, g, 6, "a")
    s.fetch("all", g, "a", [T])
    bad: list[list[tuple[int, int, list[int]]]] = [
        [(5, 4, [ACCEPT])],
        [(0, 3, [ACCEPT]), (3, 4, [ACCEPT])],
        [(0, 3, [ACCEPT]), (2, 4, [ACCEPT])],
        [(4, 5, [ACCEPT]), (0, 1, [ACCEPT])],
        [(-5, -3, [ACCEPT])],
        [(0, 0, [])],
        [(0, 3, [ACCEPT, ACCEPT])],
        [(0, 0, [ACCEPT, ACCEPT])],
        [(0, 0, [5])],
        [(0, 0, [-1])],
        [(0, 0, [RENEW])],
        [(0, 1, [ACCEPT]), (2, 2, [RENEW])],
        [(0, 6, [ACCEPT])],
        [(0, 2**62, [ACCEPT])],
    ]
    for batches in bad:
        s.acknowledge(f"{batches}", g, "a", {T: batches})
        s.fetch(f"{batches}", g, "a", acks={T: batches}, **SHORT)
    s.acknowledge("version 1 renews", g, "a", {T: [(0, 0, [RENEW])]}, version=1)
    s.acknowledge("unknown topic", g, "a", {("nobody", 0): [(0, 0, [ACCEPT])]})
    s.acknowledge("unknown partition", g, "a", {("t", 9): [(0, 0, [ACCEPT])]})
    s.acknowledge("nothing of a partition", g, "a", {T: []})
    s.acknowledge("nothing", g, "a", {})
    batch = [(0, 0, [ACCEPT])]
    s.acknowledge("good and bad", g, "a", {T: batch, ("t", 9): batch, ("nobody", 1): batch})
    s.acknowledge("all the others are still there", g, "a", {T: [(1, 5, [ACCEPT])]})
    s.describe(g)


def acknowledgements_beside_fetches(s: Share) -> None:
    g = "g-beside"
    group_with(s, g, 8, "a")
    s.fetch("four", g, "a", [T], records=4, mode=RECORD_LIMIT)
    s.fetch("four more", g, "a", acks={T: [(0, 1, [ACCEPT]), (2, 2, [REJECT])]})
    s.fetch("one comes back", g, "a", acks={T: [(3, 3, [RELEASE])]})
    s.fetch("a bad one", g, "a", acks={T: [(0, 30, [ACCEPT])]}, **SHORT)
    s.fetch("version 1", g, "a", acks={T: [(4, 5, [ACCEPT])]}, version=1, **SHORT)
    s.fetch("forgets and acknowledges", g, "a", acks={T: [(6, 6, [ACCEPT])]}, forgotten=[T])
    s.acknowledge("of a forgotten partition", g, "a", {T: [(7, 7, [ACCEPT])]})
    s.fetch("acknowledges and closes", g, "a", acks={T: [(3, 3, [ACCEPT])]}, epoch=FINAL)
    s.describe(g)


def renewals(s: Share) -> None:
    g = "g-renew"
    group_with(s, g, 5, "a")
    s.fetch("all", g, "a", [T])
    s.acknowledge("renew", g, "a", {T: [(0, 1, [RENEW])]}, is_renew_ack=True)
    s.acknowledge("renew and accept", g, "a", {T: [(0, 1, [RENEW, ACCEPT])]}, is_renew_ack=True)
    s.fetch("renew", g, "a", acks={T: [(0, 0, [RENEW])]}, is_renew_ack=True)
    s.fetch("renew nothing", g, "a", is_renew_ack=True)
    s.acknowledge("renew what is accepted", g, "a", {T: [(1, 1, [RENEW])]}, is_renew_ack=True)
    s.acknowledge("accept with the word", g, "a", {T: [(2, 2, [ACCEPT])]}, is_renew_ack=True)
    s.configure(g, share_renew_acknowledge_enable="false")
    s.acknowledge("not allowed", g, "a", {T: [(3, 3, [RENEW])]}, is_renew_ack=True)
    mixed: Acks = {T: [(3, 4, [ACCEPT, RENEW])]}
    s.acknowledge("not allowed beside another", g, "a", mixed, is_renew_ack=True)
    s.acknowledge("both are still there", g, "a", {T: [(3, 4, [ACCEPT])]})


def attempts(s: Share) -> None:
    g = "g-attempts"
    group_with(s, g, 4, "a", share_delivery_count_limit="3")
    # The last attempts come one by one.
    for number in range(2 + 4):
        s.fetch(f"{number + 1}", g, "a", [T])
        s.acknowledge(f"release {number + 1}", g, "a", everything(s, g, "a", RELEASE))
    s.fetch("all given up", g, "a", **SHORT)
    s.describe(g)
    g = "g-attempts-5"
    group_with(s, g, 6, "a", share_delivery_count_limit="5")
    # Fewer and fewer at a time. Afterwards it depends on what was delivered together.
    for number in range(7):
        s.fetch(f"{number + 1}", g, "a", [T])
        s.acknowledge(f"release {number + 1}", g, "a", everything(s, g, "a", RELEASE))


def whole_batches(s: Share) -> None:
    g = "g-batches"
    s.topic("t")
    for number in range(6):
        s.produce("t", [f"v{number}-{each}" for each in range(10)])
    s.configure(g, share_auto_offset_reset="earliest")
    s.join(g, "a", "t")
    raw: dict[str, Any] = {"has_raw_ranges": True}
    s.fetch("more than its limit", g, "a", [T], records=3, **raw)
    s.fetch("just its limit", g, "a", records=3, mode=RECORD_LIMIT, **raw)
    s.fetch("ranges of a size", g, "a", records=25, batch=4, **raw)
    s.acknowledge("one comes back", g, "a", {T: [(12, 12, [RELEASE])]})
    s.fetch("that one", g, "a", records=1, mode=RECORD_LIMIT, **raw)
    s.acknowledge("a batch comes back", g, "a", {T: [(0, 9, [RELEASE])]})
    s.fetch("all of it", g, "a", records=2, **raw)
    s.fetch("two", g, "a", records=2, mode=RECORD_LIMIT, **raw)
    s.fetch("the others", g, "a", **raw)
    acks: Acks = {T: [(0, 0, [ACCEPT]), (1, 3, [RELEASE]), (4, 9, [REJECT]), (10, 12, [GAP])]}
    s.acknowledge("some of each", g, "a", acks)
    s.fetch("three come back", g, "a", **raw)
    s.describe(g)


def ends_of_sessions(s: Share) -> None:
    g = "g-ends"
    group_with(s, g, 6, "a", "b")
    s.fetch("three", g, "a", [T], records=3, mode=RECORD_LIMIT)
    s.fetch("three", g, "b", [T], records=3, mode=RECORD_LIMIT)
    s.acknowledge("accepts one and closes", g, "b", {T: [(3, 3, [ACCEPT])]}, epoch=FINAL)
    s.fetch("what it left", g, "a")
    end_connection(s, g, "a")
    fetch_what_came_back(s, "everything again", g, "b")
    s.fetch("again from the start", g, "b", [T], epoch=OPEN, **SHORT)
    s.acknowledge("leases of before are kept", g, "b", everything(s, g, "b", ACCEPT))
    s.fetch("close", g, "b", epoch=FINAL)
    g = "g-ends-limit"
    group_with(s, g, 2, "a", share_delivery_count_limit="2")
    s.fetch("first", g, "a", [T])
    s.fetch("close", g, "a", epoch=FINAL)
    s.fetch("second", g, "a", [T])
    end_connection(s, g, "a")
    s.fetch("none left", g, "a", [T], **SHORT)
    s.describe(g)


def end_connection(s: Share, group: str, member: str) -> None:
    """Until the broker has noticed."""
    s.disconnect(member)
    last = len(s.said)

    def is_noticed() -> bool:
        s.fetch("disconnected", group, member, epoch=99)
        return bool(s.said[-1].answer[0] == "SHARE_SESSION_NOT_FOUND")

    wait_until("the end of the session", is_noticed, LOCKS_GONE_S)
    del s.said[last:-1]
    s.forget_session(group, member)


def fetch_what_came_back(s: Share, label: str, group: str, member: str) -> None:
    """Kafka gives records back after it has forgotten the session, and now and then does not wake a
    fetch that waits for them."""
    partitions = [T]
    first = len(s.said)

    def is_back() -> bool:
        leases = s.fetch(label, group, member, partitions)
        partitions.clear()
        return bool(leases)

    wait_until("the records of a session that ended", is_back, LOCKS_GONE_S)
    del s.said[first:-1]


def several_partitions(s: Share) -> None:
    g = "g-several"
    s.topic("t", 3)
    s.configure(g, share_auto_offset_reset="earliest")
    s.join(g, "a", "t")
    everywhere = [("t", number) for number in range(3)]
    s.fetch("open", g, "a", everywhere, **SHORT)
    for partition in (1, 2, 0):
        s.produce("t", [f"p{partition}"], partition)
        s.fetch("the new one", g, "a")
    s.fetch("forget two", g, "a", forgotten=everywhere[:2], **SHORT)
    s.produce("t", ["forgotten"], 0)
    s.produce("t", ["not forgotten"], 2)
    s.fetch("only of the third", g, "a")
    batch = [(0, 0, [ACCEPT])]
    acks: Acks = {("t", 0): batch, ("t", 1): batch, ("t", 2): [(0, 1, [ACCEPT])]}
    s.acknowledge("also of forgotten ones", g, "a", acks)
    s.fetch("come back", g, "a", everywhere[:1])
    s.describe(g)


def offsets(s: Share) -> None:
    g = "g-offsets"
    s.describe("g-unknown", ("t", [0]))
    s.describe("g-unknown")
    s.delete_offsets("g-unknown", "t")
    s.alter("", {T: 1})
    s.delete_offsets("", "t")
    group_with(s, g, 10, "a")
    s.topic("u")
    s.fetch("four", g, "a", [T], records=4, mode=RECORD_LIMIT)
    s.acknowledge("two of them", g, "a", {T: [(0, 0, [ACCEPT]), (2, 2, [ACCEPT])]})
    s.describe(g, ("t", [0]), ("no-such", [0]), ("u", [0]))
    s.describe(g, ("t", [0]), version=0)
    s.alter(g, {T: 3})
    s.delete_offsets(g, "t")
    s.fetch("close", g, "a", epoch=FINAL)
    s.leave(g, "a")
    s.describe(g)
    s.alter(g, {T: 3, ("t", 7): 0, ("no-such", 0): 0, ("u", 0): 0})
    s.describe(g)
    s.alter(g, {})
    s.delete_offsets(g, "no-such", "u")
    s.delete_offsets(g, "u")
    s.describe(g)
    s.delete_offsets(g, "t")
    s.describe(g, ("t", [0]))
    s.describe(g)


def strangers(s: Share) -> None:
    s.topic("t")
    s.produce("t", ["v0"])
    s.configure("g-nobody", share_auto_offset_reset="earliest")
    s.fetch("nobody has joined", "g-nobody", "c", [T])
    s.describe("g-nobody", ("t", [0]))
    acks: Acks = {T: [(0, 0, [ACCEPT])]}
    strange = {"unknown": s.prefix + "g-nobody", "empty": "", "long": "g" * 10_000}
    for g, group_id in strange.items():
        odd: dict[str, Any] = {"group_id": group_id}
        s.fetch("nobody has joined", g, "d", [T], **SHORT, **odd)
        s.acknowledge("nobody has joined", g, "d", acks, **odd)
        s.fetch("acknowledges", g, "d", acks=acks, **SHORT, **odd)
        s.fetch("acknowledges and closes", g, "d", acks=acks, epoch=FINAL, **SHORT, **odd)
        s.fetch("opens again", g, "d", **SHORT, **odd)
        s.acknowledge("acknowledges and closes", g, "d", acks, epoch=FINAL, **odd)


def deviations(s: Share) -> None:
    """Where brokers differ; nothing else depends on it."""
    g = "g-deviations"
    group_with(s, g, 2, "a", "b")
    s.fetch("all", g, "a", [T])
    s.fetch("forget it", g, "a", forgotten=[T], **SHORT)
    s.fetch("close", g, "a", epoch=FINAL)
    s.fetch("left in a forgotten partition", g, "b", [T], **SHORT)
    s.fetch("close", g, "b", epoch=FINAL)
    for member in MEMBERS:
        s.leave(g, member)
    s.alter(g, {T: -5})
    s.fetch("unknown acquire mode", g, "a", [T], mode=7, **SHORT)
    s.fetch("the id of no topic", g, "b", [("nobody", 0)], **SHORT)


def everything(s: Share, group: str, member: str, kind: int) -> Acks:
    """All that a member has, as ranges."""
    found: Acks = {}
    for (g, m, topic, partition), leased in sorted(s.leases.items()):
        if (g, m) == (group, member) and leased:
            found[topic, partition] = [(offset, offset, [kind]) for offset in sorted(leased)]
    return found


def at_random(s: Share, seed: int, steps: int = 60) -> None:
    g, rng = f"g-random-{seed}", random.Random(seed)
    # Of several partitions Kafka serves any first.
    s.topic("t")
    s.configure(g, share_auto_offset_reset="earliest", share_delivery_count_limit="10")
    for member in MEMBERS:
        s.join(g, member, "t")
        s.fetch("open", g, member, [T], **SHORT)
    numbers = iter(range(10_000))
    for _ in range(steps):
        step(s, g, rng, numbers)
    s.describe(g)
    for member in MEMBERS:
        s.acknowledge("the rest", g, member, everything(s, g, member, ACCEPT))
        s.fetch("close", g, member, epoch=FINAL)
    s.describe(g)


def step(s: Share, g: str, rng: random.Random, numbers: Iterator[int]) -> None:
    """The dice fall the same way in any case."""
    member = rng.choice(MEMBERS)
    size, limit = rng.randint(1, 6), rng.randint(1, 8)
    pick, mode = rng.random(), rng.choice([BATCH_OPTIMIZED, RECORD_LIMIT])
    actions: list[tuple[int, Callable[[], Any]]] = [
        (3, lambda: s.produce("t", [str(next(numbers)) for _ in range(size)])),
        (4, lambda: s.fetch("some", g, member, records=limit, mode=mode, **SHORT)),
        (4, lambda: s.acknowledge("some", g, member, some(s, g, member, pick))),
        (
            2,
            lambda: s.fetch("both", g, member, acks=some(s, g, member, pick, FINAL_TYPES), **SHORT),
        ),
        (1, lambda: s.acknowledge("foreign", g, member, some(s, g, other(member), pick))),
    ]
    weights = [weight for weight, _ in actions]
    rng.choices([action for _, action in actions], weights)[0]()


def other(member: str) -> str:
    return "b" if member == "a" else "a"


def some(s: Share, group: str, member: str, pick: float, types: Sequence[int] = TYPES) -> Acks:
    """Some of what a member has, each offset with a type of its own, decided by one throw."""
    rng, found = random.Random(pick), Acks()
    for (g, m, topic, partition), leased in sorted(s.leases.items()):
        if (g, m) != (group, member):
            continue
        chosen = [offset for offset in sorted(leased) if rng.random() < CHOSEN]
        if chosen:
            found[topic, partition] = [(each, each, [rng.choice(types)]) for each in chosen]
    return found
