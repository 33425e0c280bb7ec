"""Proves that throttles hold back replicas that catch up, and never what a commit may wait for."""

from pathlib import Path

import pytest

from penstock.model.ids import BrokerId, DirectoryId, LogIndex, ReplicaId
from penstock.model.topic_config import EVERYBODY, NOBODY, ThrottledReplicas, TopicConfig
from penstock.raft.membership import Membership
from penstock.raft.messages import AppendRequest
from penstock.raft.node import ReplicaStatus
from penstock.raft.progress import ProgressState
from penstock.replication.replica import Replica
from penstock.replication.throttle import (
    PIECE_BYTES_MAX,
    TICKS_PER_S,
    Bucket,
    GroupThrottle,
    NodeThrottle,
    group_throttle,
)
from tests.waiting import until

from .group_rig import Group, group_of, log_bytes
from .rig import SETTINGS, batch

OWN, OTHER, THIRD, NEWCOMER = (ReplicaId(BrokerId(n), DirectoryId(f"d{n}")) for n in range(1, 5))
KB = 1_000


# The bucket


def passed(bucket: Bucket, entry_bytes: int, seconds: int) -> int:
    """What gets through when there is always something to send, in entries of this size."""
    total = 0
    for _ in range(seconds * TICKS_PER_S):
        bucket.tick()
        while (allowance := bucket.allowance) > 0:
            size = max(allowance // entry_bytes, 1) * entry_bytes
            bucket.take(size)
            total += size
    return total


@pytest.mark.parametrize("rate", [10 * KB, 100 * KB, 1_000 * KB, 50_000 * KB])
@pytest.mark.parametrize("entry_bytes", [100, 9 * KB])
def test_over_time_a_bucket_lets_its_rate_through(rate: int, entry_bytes: int) -> None:
    through = passed(Bucket(rate), entry_bytes, 20)
    assert 0.9 * 20 * rate <= through <= 1.1 * 20 * rate


@pytest.mark.parametrize("rate", [0, 1, 10])
def test_however_low_the_rate_is_something_passes_every_other_second(rate: int) -> None:
    assert 10 <= passed(Bucket(rate), 1_000_000, 20) / 1_000_000 <= 20


def test_no_more_is_saved_up_than_a_second_s_worth() -> None:
    bucket = Bucket(1_000)
    for _ in range(100 * TICKS_PER_S):
        bucket.tick()
    assert bucket.allowance == 1_000


def test_what_is_owed_at_a_low_rate_does_not_delay_a_higher_one() -> None:
    bucket = Bucket(1)
    bucket.take(1_000_000)
    bucket.set_rate(20 * PIECE_BYTES_MAX)
    bucket.tick()
    assert bucket.allowance >= PIECE_BYTES_MAX


def test_what_was_saved_up_at_a_high_rate_does_not_count_at_a_lower_one() -> None:
    bucket = Bucket(1_000_000)
    for _ in range(TICKS_PER_S):
        bucket.tick()
    bucket.set_rate(1_000)
    assert bucket.allowance == 1_000


# The rule


class Core:
    """A leader as its throttle sees it: three voters, of which one may lag, and a learner."""

    def __init__(self) -> None:
        self.id = OWN
        self.commit_index = LogIndex(100)
        self.membership = Membership(frozenset({OWN, OTHER, THIRD}), frozenset({NEWCOMER}))
        self.silent: set[ReplicaId] = set()
        self.match = {OTHER: 100, THIRD: 5, NEWCOMER: 5}

    def replicas(self) -> list[ReplicaStatus]:
        return [
            ReplicaStatus(
                replica,
                replica in self.membership.voters,
                LogIndex(index),
                ProgressState.REPLICATE,
                replica not in self.silent,
            )
            for replica, index in self.match.items()
        ]


class InSync:
    def __init__(self, *members: ReplicaId) -> None:
        self.members = members


class Rig:
    def __init__(self, *in_sync: ReplicaId, **config: object) -> None:
        self.core = Core()
        self.node = NodeThrottle()
        self.node.set_rates(1, {})
        self.woken = 0
        wanted = TopicConfig(throttled_leaders=EVERYBODY, **config)  # type: ignore[arg-type]
        self.throttle = GroupThrottle(
            self.node,
            0,
            wanted,
            self.core,  # type: ignore[arg-type]
            InSync(*in_sync),  # type: ignore[arg-type]
            self.wake,
        )

    def wake(self) -> None:
        self.woken += 1

    def holds_back(self, replica: ReplicaId) -> bool:
        return self.throttle.allowance(replica) == 0


def test_a_learner_and_a_voter_that_is_out_of_sync_are_held_back_and_no_other() -> None:
    rig = Rig(OWN, OTHER)
    assert rig.holds_back(NEWCOMER)
    assert rig.holds_back(THIRD)
    assert rig.throttle.allowance(OTHER) is None


def test_a_voter_that_counts_as_in_sync_is_not_held_back_however_far_it_lags() -> None:
    assert not Rig(OWN, OTHER, THIRD).holds_back(THIRD)


def test_a_voter_is_not_held_back_when_a_commit_may_wait_for_it() -> None:
    rig = Rig(OWN, OTHER)
    rig.core.silent = {OTHER}
    assert not rig.holds_back(THIRD)
    rig = Rig(OWN, OTHER)
    rig.core.match[OTHER] = 99
    assert not rig.holds_back(THIRD)
    rig = Rig(OWN, OTHER)
    rig.core.membership = Membership(frozenset({OTHER, THIRD}), frozenset())
    assert not rig.holds_back(THIRD), "the leader itself does not vote any more"


def test_a_voter_is_not_held_back_when_producers_want_its_copy() -> None:
    assert Rig(OWN, OTHER, min_insync_replicas=2).holds_back(THIRD)
    assert not Rig(OWN, OTHER, min_insync_replicas=3).holds_back(THIRD)


def test_only_what_the_topic_lists_is_bounded_and_by_the_rate_of_its_side() -> None:
    rig = Rig(OWN, OTHER)

    def throttle(leaders: ThrottledReplicas, followers: ThrottledReplicas) -> GroupThrottle | None:
        config = TopicConfig(throttled_leaders=leaders, throttled_followers=followers)
        core, in_sync = rig.core, InSync(OWN, OTHER)
        return group_throttle(rig.node, 0, config, core, in_sync, rig.wake)  # type: ignore[arg-type]

    def listed(*pairs: tuple[int, int]) -> ThrottledReplicas:
        return ThrottledReplicas(listed=frozenset(pairs))

    assert throttle(NOBODY, NOBODY) is None
    assert throttle(listed((1, 1), (0, 2)), listed((1, 4))) is None, "others are listed"
    by_leader = throttle(listed((0, 1)), NOBODY)
    assert by_leader is not None
    assert by_leader.allowance(NEWCOMER) == 0
    by_follower = throttle(NOBODY, listed((0, 4)))
    assert by_follower is not None
    assert by_follower.allowance(NEWCOMER) is None, "that broker has no rate"
    rig.node.set_rates(None, {NEWCOMER.node: 1})
    assert by_leader.allowance(NEWCOMER) is None
    assert by_follower.allowance(NEWCOMER) == 0
    assert by_follower.allowance(THIRD) is None, "it is not listed"


def test_of_those_who_wait_one_after_the_other_has_its_turn() -> None:
    first, second = Rig(OWN, OTHER), Rig(OWN, OTHER)
    second.throttle._throttle = first.node
    first.node.set_rates(10 * KB, {})
    for rig in (first, second):
        assert rig.holds_back(NEWCOMER)
    while not first.woken:
        first.node.tick()
    assert second.woken == 0
    allowance = first.throttle.allowance(NEWCOMER)
    assert allowance is not None
    first.throttle.sent(NEWCOMER, 1)
    assert second.woken == 1, "there is room left for the next one"
    second.throttle.sent(NEWCOMER, allowance)
    assert first.holds_back(NEWCOMER)


def test_a_change_of_the_rate_wakes_everybody() -> None:
    rig = Rig(OWN, OTHER)
    assert rig.holds_back(NEWCOMER)
    rig.node.set_rates(None, {})
    assert rig.woken == 1
    assert rig.throttle.allowance(NEWCOMER) is None


# Groups

EVERY_LEADER = TopicConfig(throttled_leaders=EVERYBODY)
EVERY_FOLLOWER = TopicConfig(throttled_followers=EVERYBODY)
VALUE = b"x" * KB


def set_rate(group: Group, rate: float | None) -> None:
    """For what any node sends, and for what it receives."""
    others = {} if rate is None else {BrokerId(number): rate for number in range(1, 5)}
    for node in group.network.nodes.values():
        node.store.throttle.set_rates(rate, others)


async def fill(leader: Replica, batches: int = 200) -> None:
    """And lets time pass: a learner that lacks only what is new counts as caught up."""
    for _ in range(batches):
        leader.append(batch(VALUE))
    await leader.committed()
    await ticks(leader, 2 * SETTINGS.election_ticks)


def bytes_to(group: Group, number: int) -> int:
    return sum(
        entry.size_bytes
        for message in group.network.delivered
        if isinstance(message, AppendRequest) and message.to.node == number
        for entry in message.entries
    )


async def add_learner(group: Group, leader: Replica) -> Replica:
    node = group.start_node(4)
    newcomer = await group.open(node)
    for replica in group.replicas:
        replica.set_wanted([group.network.nodes[number].id for number in (1, 2, 4)])
    await until(lambda: node.id in leader.membership.learners)
    return newcomer


async def ticks(leader: Replica, count: int) -> None:
    end = leader._ticks + count
    await until(lambda: leader._ticks >= end)


@pytest.mark.parametrize("config", [EVERY_LEADER, EVERY_FOLLOWER])
async def test_a_learner_gets_what_the_rate_allows_and_then_the_rest_at_once(
    tmp_path: Path, config: TopicConfig
) -> None:
    async with group_of(tmp_path, 1, 2, 3, config=config) as group:
        leader = await group.leader()
        await fill(leader)
        set_rate(group, 20 * KB)
        newcomer = await add_learner(group, leader)
        begin, got = leader._ticks, bytes_to(group, 4)
        await ticks(leader, 3 * TICKS_PER_S)
        seconds = (leader._ticks - begin) / TICKS_PER_S
        sent = bytes_to(group, 4) - got
        assert 0.5 * seconds * 20 * KB <= sent <= (seconds + 1) * 20 * KB
        assert newcomer.id in leader.membership.learners
        (status,) = [s for s in leader._node.replicas() if s.replica == newcomer.id]
        assert status.recently_active, "it hears its leader and answers"
        begin = leader._ticks
        set_rate(group, None)
        await until(lambda: leader.is_reconciled)
        assert leader._ticks - begin < 3 * TICKS_PER_S, "the rest would take seven seconds"
        await until(lambda: log_bytes(newcomer) == log_bytes(leader))


async def test_a_throttle_of_one_byte_a_second_stops_no_producer(tmp_path: Path) -> None:
    config = TopicConfig(throttled_leaders=EVERYBODY, throttled_followers=EVERYBODY)
    async with group_of(tmp_path, 1, 2, 3, config=config) as group:
        leader = await group.leader()
        set_rate(group, 1)
        await add_learner(group, leader)
        begin = leader._ticks
        for _ in range(50):
            leader.append(batch(VALUE))
            await leader.committed()
        assert leader._ticks - begin < 5 * TICKS_PER_S
        assert leader.is_leader


async def test_a_voter_that_was_away_is_held_back_until_it_is_needed(tmp_path: Path) -> None:
    async with group_of(tmp_path, 1, 2, 3, config=EVERY_LEADER) as group:
        leader = await group.leader()
        away, other = (n for n in (1, 2, 3) if n != leader.id.node)
        group.network.isolate(away)
        await until(lambda: away not in leader.in_sync())
        await fill(leader)
        set_rate(group, 10)
        group.network.heal()
        await ticks(leader, TICKS_PER_S)
        assert bytes_to(group, away) < 10 * KB
        await group.crash(other)
        begin = leader._ticks
        leader.append(batch(VALUE))
        await leader.committed()
        assert leader._ticks - begin < 4 * TICKS_PER_S, "a time-out shows that it is needed"


async def test_a_throttle_that_is_removed_from_the_topic_holds_nobody_back(tmp_path: Path) -> None:
    async with group_of(tmp_path, 1, 2, 3, config=EVERY_LEADER) as group:
        leader = await group.leader()
        await fill(leader)
        set_rate(group, 1)
        await add_learner(group, leader)
        await ticks(leader, TICKS_PER_S)
        assert bytes_to(group, 4) < 10 * KB
        begin = leader._ticks
        for replica in group.replicas:
            replica.set_config(TopicConfig())
        await until(lambda: leader.is_reconciled)
        assert leader._ticks - begin < 3 * TICKS_PER_S
