"""Static members (KIP-345, KIP-814): a restart under the same instance id disturbs nobody."""

from penstock.groups.commands import NO_MEMBER, MemberProtocol
from penstock.groups.effects import Purpose
from penstock.groups.transitions import GroupState
from penstock.model.errors import Reason
from penstock.model.ids import MemberId
from tests.unit.groups.driver import REBALANCE_MS, SESSION_MS, Driver, subscription


def stable(driver: Driver) -> tuple[MemberId, MemberId]:
    leader, follower = driver.stable({"instance_id": "leader"}, {"instance_id": "follower"})
    return leader, follower


def test_static_members_are_not_sent_away_for_an_id() -> None:
    driver = Driver()
    ticket = driver.join(takes_member_id=True, instance_id="i")
    driver.advance(200)
    assert driver.joined(ticket).refused is None


def test_follower_comes_back_without_a_rebalance_once_that_is_stored() -> None:
    driver = Driver()
    leader, follower = stable(driver)
    ticket = driver.join(instance_id="follower")
    assert ticket not in driver.answers
    assert [store.purpose for store in driver.stores] == [Purpose.REPLACED]
    stored = {m.instance_id: m for m in driver.stores[0].record.metadata.members}
    driver.store()
    answer = driver.joined(ticket)
    assert answer.member_id not in (leader, follower, NO_MEMBER)
    assert stored["follower"].member_id == answer.member_id
    assert stored["follower"].assignment == b"assigned 1"
    assert (answer.generation, answer.leader, answer.members) == (1, leader, ())
    assert driver.group.state is GroupState.STABLE
    synced = driver.synced(driver.sync(answer.member_id))
    assert synced.assignment == b"assigned 1"


def test_the_one_who_had_the_id_before_is_fenced() -> None:
    driver = Driver()
    leader, follower = stable(driver)
    driver.join(instance_id="follower")
    driver.store()
    fenced = Reason.FENCED_INSTANCE_ID
    again = driver.join(member_id=follower, instance_id="follower")
    assert driver.joined(again).refused is fenced
    old_sync = driver.sync(follower, instance_id="follower")
    assert driver.synced(old_sync).refused is fenced
    assert driver.group.members.leader == leader


def test_requests_of_the_old_one_that_wait_are_fenced_at_once() -> None:
    driver = Driver()
    leader, follower = stable(driver)
    waiting = driver.join(member_id=leader, instance_id="leader")
    driver.join(instance_id="leader")
    assert driver.joined(waiting).refused is Reason.FENCED_INSTANCE_ID
    assert driver.joined(waiting).member_id == leader
    driver.join(member_id=follower, instance_id="follower")
    assert driver.group.generation == 2
    syncing = driver.sync(follower, instance_id="follower")
    driver.join(instance_id="follower")
    assert driver.synced(syncing).refused is Reason.FENCED_INSTANCE_ID
    assert driver.group.state is GroupState.PREPARING_REBALANCE, "its new id needs an assignment"


def test_leader_that_comes_back_is_told_not_to_assign() -> None:
    driver = Driver()
    _, follower = stable(driver)
    ticket = driver.join(instance_id="leader")
    driver.store()
    answer = driver.joined(ticket)
    assert answer.skip_assignment
    assert answer.leader == answer.member_id
    assert {m.member_id for m in answer.members} == {answer.member_id, follower}


def test_old_client_that_leads_is_shown_its_old_id_as_leader() -> None:
    driver = Driver()
    leader, _ = stable(driver)
    ticket = driver.join(instance_id="leader", can_skip_assignment=False)
    driver.store()
    answer = driver.joined(ticket)
    assert not answer.skip_assignment
    assert answer.leader == leader
    assert answer.members == ()


def test_other_topics_start_a_rebalance() -> None:
    driver = Driver()
    stable(driver)
    ticket = driver.join(
        instance_id="follower", protocols=(MemberProtocol("range", subscription("t", "u")),)
    )
    assert driver.group.state is GroupState.PREPARING_REBALANCE
    assert ticket not in driver.answers


def test_other_data_of_the_assignor_does_not() -> None:
    """A sticky member that restarts owns nothing any more and says so."""
    driver = Driver()
    stable(driver)
    data = subscription("t", user_data=b"owns nothing")
    driver.join(instance_id="follower", protocols=(MemberProtocol("range", data),))
    assert driver.group.state is GroupState.STABLE


def test_another_choice_of_protocol_starts_a_rebalance() -> None:
    driver = Driver()
    both = (
        MemberProtocol("range", subscription("t")),
        MemberProtocol("sticky", subscription("t")),
    )
    driver.stable({"instance_id": "i", "protocols": both})
    ticket = driver.join(instance_id="i", protocols=both[::-1])
    assert (driver.joined(ticket).generation, driver.joined(ticket).protocol) == (2, "sticky")


def test_replacement_that_can_not_be_stored_is_refused_and_can_be_repeated() -> None:
    driver = Driver()
    stable(driver)
    first = driver.join(instance_id="follower")
    driver.store(Reason.NOT_COORDINATOR)
    assert driver.joined(first).refused is Reason.NOT_COORDINATOR
    second = driver.join(instance_id="follower")
    driver.store()
    assert driver.joined(second).generation == 1


def test_replacement_overtaken_by_a_rebalance_takes_part_in_it() -> None:
    driver = Driver()
    leader, _ = stable(driver)
    ticket = driver.join(instance_id="follower")
    driver.join(member_id=leader, instance_id="leader")
    driver.store()
    assert driver.joined(ticket).generation == 2


def test_static_member_that_is_away_keeps_its_place_until_its_session_ends() -> None:
    driver = Driver()
    leader, follower = driver.stable(
        {}, {"instance_id": "i", "session_timeout_ms": REBALANCE_MS * 3}
    )
    ticket = driver.join(member_id=leader)
    driver.advance(REBALANCE_MS)
    assert driver.joined(ticket).generation == 2
    assert {m.member_id for m in driver.joined(ticket).members} == {leader, follower}


def test_group_of_static_members_that_are_all_away_waits_for_their_sessions() -> None:
    driver = Driver()
    driver.stable(
        {"session_timeout_ms": SESSION_MS},
        {"instance_id": "i", "session_timeout_ms": REBALANCE_MS * 4},
    )
    driver.advance(SESSION_MS + REBALANCE_MS + 1)
    assert driver.group.state is GroupState.PREPARING_REBALANCE
    driver.advance(REBALANCE_MS * 4)
    assert driver.group.state is GroupState.EMPTY


def test_member_id_with_an_instance_that_is_not_there_is_unknown() -> None:
    driver = Driver()
    leader, _ = stable(driver)
    ticket = driver.join(member_id=leader, instance_id="other")
    assert driver.joined(ticket).refused is Reason.UNKNOWN_MEMBER_ID
