"""Who may join, sync, heartbeat, commit and leave, and what the others are told."""

import pytest

from penstock.groups.commands import NO_MEMBER, Departure, MemberProtocol
from penstock.groups.transitions import GroupState
from penstock.model.errors import Reason, Refused
from penstock.model.ids import MemberId
from tests.unit.groups.driver import REBALANCE_MS, SESSION_MS, Driver, subscription

RANGE = MemberProtocol("range", subscription("t"))
STICKY = MemberProtocol("sticky", subscription("t"))


def pending(driver: Driver) -> MemberId:
    ticket = driver.join(takes_member_id=True)
    assert driver.joined(ticket).refused is Reason.MEMBER_ID_REQUIRED
    return driver.joined(ticket).member_id


def test_new_member_is_sent_away_with_its_id_and_joins_with_it() -> None:
    driver = Driver()
    member_id = pending(driver)
    assert driver.group.state is GroupState.EMPTY
    ticket = driver.join(takes_member_id=True, member_id=member_id)
    driver.advance(200)
    assert driver.joined(ticket).member_id == member_id
    assert driver.joined(ticket).leader == member_id


def test_pending_member_that_never_comes_back_is_forgotten() -> None:
    driver = Driver()
    member_id = pending(driver)
    driver.advance(SESSION_MS)
    assert driver.group.is_forgettable
    ticket = driver.join(takes_member_id=True, member_id=member_id)
    assert driver.joined(ticket).refused is Reason.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_pending_members_but_not_longer_than_their_session() -> None:
    driver = Driver()
    (leader,) = driver.stable({"session_timeout_ms": 100_000})
    pending(driver)
    ticket = driver.join(member_id=leader)
    driver.advance(SESSION_MS - 1)
    assert ticket not in driver.answers
    driver.advance(1)
    assert driver.joined(ticket).generation == 2


def test_pending_member_that_leaves_starts_no_rebalance() -> None:
    driver = Driver()
    driver.stable({})
    member_id = pending(driver)
    assert driver.leave(Departure(member_id)) == [None]
    assert driver.group.state is GroupState.STABLE
    assert not driver.group.members.pending


def test_only_the_leader_is_told_who_is_in() -> None:
    driver = Driver()
    first, second = driver.join(), driver.join()
    driver.advance(300)
    leader, follower = driver.joined(first), driver.joined(second)
    assert [m.member_id for m in leader.members] == [leader.member_id, follower.member_id]
    assert [m.metadata for m in leader.members] == [subscription("t")] * 2
    assert follower.members == ()
    assert follower.leader == leader.member_id
    assert leader.protocol == "range"
    assert leader.protocol_type == "consumer"


@pytest.mark.parametrize(
    "changes",
    [
        {"protocol_type": "connect"},
        {"protocols": (MemberProtocol("unheard-of", b""),)},
        {"protocols": ()},
        {"protocol_type": ""},
    ],
)
def test_protocols_must_agree_with_the_group(changes: dict[str, object]) -> None:
    driver = Driver()
    driver.stable({})
    assert driver.joined(driver.join(**changes)).refused is Reason.INCONSISTENT_GROUP_PROTOCOL
    assert driver.group.state is GroupState.STABLE


@pytest.mark.parametrize("changes", [{"protocols": ()}, {"protocol_type": ""}])
def test_first_member_must_bring_a_protocol(changes: dict[str, object]) -> None:
    driver = Driver()
    assert driver.joined(driver.join(**changes)).refused is Reason.INCONSISTENT_GROUP_PROTOCOL
    assert driver.group.is_forgettable


def test_the_protocol_that_most_prefer_among_those_all_support_is_chosen() -> None:
    driver = Driver()
    other = MemberProtocol("other", b"")
    tickets = [
        driver.join(protocols=(RANGE, STICKY)),
        driver.join(protocols=(other, STICKY, RANGE)),
        driver.join(protocols=(STICKY, RANGE)),
    ]
    driver.advance(1_000)
    assert {driver.joined(ticket).protocol for ticket in tickets} == {"sticky"}


def test_a_member_that_repeats_its_join_gets_one_answer_and_the_old_request_another() -> None:
    driver = Driver()
    leader, follower = driver.stable({}, {})
    first = driver.join(member_id=leader)
    second = driver.join(member_id=leader)
    assert driver.joined(first).refused is Reason.REBALANCE_IN_PROGRESS
    driver.join(member_id=follower)
    assert driver.joined(second).generation == 2


def test_a_member_that_did_not_get_the_answer_to_its_join_gets_it_again() -> None:
    driver = Driver()
    tickets = [driver.join(), driver.join()]
    driver.advance(300)
    leader, follower = (driver.joined(ticket) for ticket in tickets)
    again = driver.joined(driver.join(member_id=leader.member_id))
    assert again == leader
    assert driver.joined(driver.join(member_id=follower.member_id)) == follower


def test_group_full_turns_new_members_away_but_not_its_own() -> None:
    driver = Driver(members_max=2)
    first, second = driver.stable({}, {})
    refused = driver.joined(driver.join())
    assert refused.refused is Reason.GROUP_MAX_SIZE_REACHED
    assert refused.member_id == NO_MEMBER
    assert driver.group.state is GroupState.STABLE
    tickets = [driver.join(member_id=first), driver.join(member_id=second)]
    assert [driver.joined(ticket).refused for ticket in tickets] == [None, None]


def test_group_full_lets_a_static_member_take_its_place_again() -> None:
    driver = Driver(members_max=1)
    driver.stable({"instance_id": "i"})
    driver.join(instance_id="i")
    assert driver.stores, "replaced, not refused"


def test_pending_members_are_bounded_too() -> None:
    driver = Driver(members_max=3)
    for _ in range(3):
        pending(driver)
    ticket = driver.join(takes_member_id=True)
    assert driver.joined(ticket).refused is Reason.GROUP_MAX_SIZE_REACHED


def test_over_full_group_after_a_lowered_limit_keeps_the_first_to_come_back() -> None:
    driver = Driver(members_max=3)
    members = driver.stable({}, {}, {})
    driver.group._settings = Driver(members_max=2).settings
    tickets = [driver.join(member_id=member) for member in members]
    assert [driver.joined(ticket).refused for ticket in tickets] == [
        None,
        None,
        Reason.GROUP_MAX_SIZE_REACHED,
    ]


# Sync


def test_sync_is_checked() -> None:
    driver = Driver()
    leader, follower = driver.stable({}, {})
    assert driver.synced(driver.sync(MemberId("?"))).refused is Reason.UNKNOWN_MEMBER_ID
    stale = driver.sync(follower, generation=0)
    assert driver.synced(stale).refused is Reason.ILLEGAL_GENERATION
    for wrong in (
        driver.sync(follower, protocol="sticky"),
        driver.sync(follower, protocol_type="connect"),
    ):
        assert driver.synced(wrong).refused is Reason.INCONSISTENT_GROUP_PROTOCOL
    right = driver.sync(follower, protocol="range", protocol_type="consumer")
    assert driver.synced(right).assignment == b"assigned 1"
    driver.join(member_id=leader)
    assert driver.synced(driver.sync(follower)).refused is Reason.REBALANCE_IN_PROGRESS


def test_second_sync_of_the_leader_does_not_change_what_is_being_stored() -> None:
    driver = Driver()
    ticket = driver.join()
    driver.advance(200)
    leader = driver.joined(ticket).member_id
    first = driver.sync(leader, {str(leader): b"one"})
    second = driver.sync(leader, {str(leader): b"two"})
    assert driver.synced(first).refused is Reason.REBALANCE_IN_PROGRESS
    assert len(driver.stores) == 1
    driver.store()
    assert driver.synced(second).assignment == b"one"


def test_members_without_an_assignment_get_an_empty_one() -> None:
    driver = Driver()
    tickets = [driver.join(), driver.join()]
    driver.advance(300)
    leader, follower = (driver.joined(ticket).member_id for ticket in tickets)
    waiting = driver.sync(follower)
    driver.sync(leader, {str(leader): b"all", "stranger": b"none"})
    driver.store()
    assert driver.synced(waiting).assignment == b""
    assert driver.synced(waiting).refused is None


def test_assignments_beyond_the_limit_of_a_generation_are_refused() -> None:
    driver = Driver(generation_bytes_max=1_000)
    ticket = driver.join()
    driver.advance(200)
    leader = driver.joined(ticket).member_id
    refused = driver.sync(leader, {str(leader): bytes(1_000)})
    assert driver.synced(refused).refused is Reason.UNKNOWN_SERVER_ERROR
    assert driver.group.state is GroupState.PREPARING_REBALANCE
    assert not driver.stores


def test_result_of_an_overtaken_store_changes_nothing() -> None:
    driver = Driver()
    ticket = driver.join()
    driver.advance(200)
    leader = driver.joined(ticket).member_id
    driver.sync(leader, {str(leader): b"old"})
    (old,) = driver.stores
    newcomer = driver.join()
    driver.join(member_id=leader)
    driver.perform(driver.group.stored(old, None))
    assert driver.group.state is GroupState.COMPLETING_REBALANCE
    assert driver.joined(newcomer).generation == 2
    driver.stores.clear()
    driver.sync(leader, {str(leader): b"new"})
    assert len(driver.stores) == 1, "the leader's next assignment is stored"


# Sessions


def test_waiting_members_are_excused_from_heartbeats() -> None:
    driver = Driver()
    first, second = driver.stable({}, {"session_timeout_ms": REBALANCE_MS + 1})
    ticket = driver.join(member_id=first)
    driver.advance(SESSION_MS * 2)
    assert first in driver.group.members
    driver.join(member_id=second)
    assert driver.joined(ticket).refused is None
    driver.advance(SESSION_MS)
    assert first not in driver.group.members, "its session runs again after the answer"


def test_new_members_that_wait_too_long_are_told_to_join_anew() -> None:
    driver = Driver(new_member_join_timeout_ms=5_000)
    driver.stable({"session_timeout_ms": 100_000})
    ticket = driver.join()
    driver.advance(5_000)
    assert driver.joined(ticket).refused is Reason.UNKNOWN_MEMBER_ID


def test_heartbeat_is_checked() -> None:
    driver = Driver()
    (member,) = driver.stable({"instance_id": "i"})
    assert driver.group.heartbeat(member, "i", 1) == SESSION_MS
    for args, reason in [
        ((MemberId("?"), None, 1), Reason.UNKNOWN_MEMBER_ID),
        ((member, "other", 1), Reason.UNKNOWN_MEMBER_ID),
        ((MemberId("?"), "i", 1), Reason.FENCED_INSTANCE_ID),
        ((member, None, 0), Reason.ILLEGAL_GENERATION),
    ]:
        with pytest.raises(Refused) as refused:
            driver.group.heartbeat(*args)
        assert refused.value.reason is reason


# Commits


def test_commits_are_checked() -> None:
    driver = Driver()
    check = driver.group.check_commit
    check(NO_MEMBER, None, -1)
    leader, follower = driver.stable({}, {})
    check(leader, None, 1)
    for args, reason in [
        ((NO_MEMBER, None, -1), Reason.UNKNOWN_MEMBER_ID),
        ((MemberId("?"), None, 1), Reason.UNKNOWN_MEMBER_ID),
        ((leader, None, 0), Reason.ILLEGAL_GENERATION),
        ((leader, None, -1), Reason.ILLEGAL_GENERATION),
    ]:
        with pytest.raises(Refused) as refused:
            check(*args)
        assert refused.value.reason is reason
    driver.join(member_id=leader)
    check(follower, None, 1)
    driver.join(member_id=follower)
    with pytest.raises(Refused) as refused:
        check(follower, None, 2)
    assert refused.value.reason is Reason.REBALANCE_IN_PROGRESS


# Leaving


def test_several_leave_at_once_and_each_has_its_answer() -> None:
    driver = Driver()
    first, second, third = driver.stable({}, {"instance_id": "i"}, {})
    outcomes = driver.leave(
        Departure(first),
        Departure(NO_MEMBER, "i"),
        Departure(MemberId("?")),
        Departure(NO_MEMBER, "nobody"),
        Departure(NO_MEMBER),
        Departure(first),
    )
    unknown = Reason.UNKNOWN_MEMBER_ID
    assert outcomes == [None, None, unknown, unknown, unknown, unknown]
    assert set(driver.group.members.ids()) == {third}
    assert second not in driver.group.members
    assert driver.group.state is GroupState.PREPARING_REBALANCE


def test_leaving_with_a_fenced_id_is_refused() -> None:
    driver = Driver()
    (member,) = driver.stable({"instance_id": "i"})
    assert driver.leave(Departure(MemberId("?"), "i")) == [Reason.FENCED_INSTANCE_ID]
    assert member in driver.group.members


def test_the_lead_passes_on() -> None:
    driver = Driver()
    first, second, third = driver.stable({}, {}, {})
    driver.leave(Departure(first))
    assert driver.group.members.leader == second
    ticket = driver.join(member_id=third)
    driver.join(member_id=second)
    assert driver.joined(ticket).leader == second


# Descriptions


def test_description_shows_metadata_only_of_stable_groups() -> None:
    driver = Driver()
    leader, _ = driver.stable({}, {"instance_id": "i"})
    described = driver.group.describe()
    assert (described.state, described.protocol, described.protocol_type) == (
        "Stable",
        "range",
        "consumer",
    )
    assert [m.instance_id for m in described.members] == [None, "i"]
    assert described.members[0].metadata == subscription("t")
    assert described.members[0].assignment == b"assigned 0"
    driver.join(member_id=leader)
    described = driver.group.describe()
    assert (described.state, described.protocol) == ("PreparingRebalance", "")
    assert described.members[0].metadata == b""


def test_subscription_is_known_from_the_members_metadata() -> None:
    driver = Driver()
    driver.stable({}, {"protocols": (MemberProtocol("range", subscription("u")),)})
    assert [driver.group.is_subscribed_to(topic) for topic in "tuv"] == [True, True, False]
    opaque = Driver()
    opaque.stable({"protocols": (MemberProtocol("range", b"?"),)})
    assert opaque.group.is_subscribed_to("v"), "in doubt it is"
    connect = Driver()
    connect.stable({"protocol_type": "connect"})
    assert not connect.group.is_subscribed_to("t")
