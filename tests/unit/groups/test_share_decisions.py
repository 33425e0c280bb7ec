"""What follows from the heartbeats of a share group."""

import pytest

from penstock.groups.modern_group import ModernState
from penstock.groups.modern_records import KeptQueues, NamedPartitions
from penstock.groups.share_decisions import (
    AT_BEGINNING,
    BY_SETTING,
    deleting,
    forgotten,
    initialized,
    initializing,
    missing_queues,
)
from penstock.model.errors import Reason, Refused
from tests.unit.groups.share_rig import ShareRig


def refusal(rig: ShareRig, member_id: str, epoch: int) -> Reason:
    records = len(rig.log)
    with pytest.raises(Refused) as caught:
        rig.heartbeat(member_id, epoch)
    assert len(rig.log) == records
    return caught.value.reason


def ready(**topics: int) -> ShareRig:
    """A member `a` that reads these topics, whose queues are there."""
    rig = ShareRig(**topics)
    rig.join("a", *topics)
    rig.make_queues()
    rig.settle("a")
    return rig


# Joining


def test_a_partition_is_not_handed_out_before_its_queue_is_there() -> None:
    rig = ShareRig(t=3)
    joined = rig.decide("a", 0, topics=frozenset({"t"}))
    assert joined.answer.assignment == {}
    assert joined.lacks_queues
    rig.make_queues()
    answer = rig.heartbeat("a", joined.answer.member_epoch)
    assert answer.assignment == rig.partitions(t=range(3))
    assert answer.member_epoch == joined.answer.member_epoch + 1


def test_a_group_begins_with_the_epoch_that_kafkas_have() -> None:
    rig = ShareRig(t=1)
    answer = rig.join("a", "t")
    assert (answer.member_epoch, rig.group.epoch, rig.group.target_epoch) == (2, 2, 2)


def test_a_heartbeat_without_news_writes_nothing_and_tells_nothing() -> None:
    rig = ready(t=3)
    decision = rig.decide("a", rig.member("a").current.epoch)
    assert decision.records == []
    assert decision.answer.assignment is None


def test_a_member_that_names_its_topics_is_told_all() -> None:
    rig = ready(t=3)
    epoch = rig.member("a").current.epoch
    answer = rig.heartbeat("a", epoch, topics=frozenset({"t"}))
    assert (answer.assignment, answer.member_epoch) == (rig.partitions(t=range(3)), epoch)


def test_members_share_a_partition_when_there_are_more_of_them() -> None:
    rig = ready(t=1)
    for name in ("b", "c"):
        assert rig.join(name, "t").assignment == rig.partitions(t=[0])
    rig.settle("a", "b", "c")
    held = [rig.member(name).current.assigned.keys() for name in "abc"]
    assert held == [{rig.topic("t")}] * 3


def test_a_member_changes_over_at_once() -> None:
    rig = ready(t=4)
    given = rig.join("b", "t").assignment
    assert given is not None
    kept = rig.heartbeat("a", rig.member("a").current.epoch).assignment
    assert kept is not None
    topic = rig.topic("t")
    assert sorted([*given[topic], *kept[topic]]) == [0, 1, 2, 3]


def test_a_full_group_takes_no_other_member() -> None:
    rig = ready(t=1)
    rig.members_max = 1
    assert refusal(rig, "b", 0) is Reason.GROUP_MAX_SIZE_REACHED
    assert refusal(rig, "b", 5) is Reason.GROUP_MAX_SIZE_REACHED
    rig.settle("a")


# Epochs


def test_a_member_may_be_one_epoch_behind() -> None:
    rig = ready(t=2)
    before = rig.member("a").current.epoch
    rig.join("b", "t")
    rig.settle("a")
    assert rig.member("a").current.previous_epoch == before
    answer = rig.heartbeat("a", before)
    assert answer.member_epoch == before + 1
    assert answer.assignment == rig.partitions(t=[0]), "it has not heard of it"
    assert rig.heartbeat("a", before + 1).assignment is None


@pytest.mark.parametrize("difference", [-2, 1, 7])
def test_any_other_epoch_is_fenced(difference: int) -> None:
    rig = ready(t=2)
    epoch = rig.member("a").current.epoch + difference
    assert refusal(rig, "a", epoch) is Reason.FENCED_MEMBER_EPOCH


def test_who_is_not_in_the_group_is_not_known() -> None:
    rig = ready(t=2)
    assert refusal(rig, "b", 3) is Reason.UNKNOWN_MEMBER_ID
    assert refusal(rig, "b", -1) is Reason.UNKNOWN_MEMBER_ID


def test_a_member_may_join_again_and_goes_on_where_it_was() -> None:
    rig = ready(t=2)
    epoch = rig.group.epoch
    answer = rig.join("a", "t")
    assert (answer.assignment, rig.group.epoch) == (rig.partitions(t=range(2)), epoch)


# Leaving and changing


def test_what_a_member_had_goes_to_the_others() -> None:
    rig = ready(t=2)
    rig.join("b", "t")
    rig.settle("a")
    answer = rig.heartbeat("b", -1)
    assert (answer.member_epoch, answer.assignment) == (-1, None)
    after = rig.heartbeat("a", rig.member("a").current.epoch)
    assert after.assignment == rig.partitions(t=range(2))


def test_a_member_whose_session_ends_is_out_of_the_group() -> None:
    rig = ready(t=2)
    epoch = rig.group.epoch
    rig.fence("a")
    assert rig.group.is_empty
    assert rig.group.epoch == epoch + 1
    assert rig.group.state is ModernState.EMPTY
    assert not rig.group.is_forgettable


def test_a_member_has_nothing_of_what_it_does_not_read() -> None:
    rig = ready(t=2, u=1)
    answer = rig.heartbeat("a", rig.member("a").current.epoch, topics=frozenset({"u"}))
    assert answer.assignment == rig.partitions(u=[0])
    answer = rig.heartbeat("a", answer.member_epoch, topics=frozenset())
    assert answer.assignment == {}


def test_a_rack_alone_changes_nothing_for_the_group() -> None:
    rig = ready(t=2)
    epoch = rig.group.epoch
    decision = rig.decide("a", rig.member("a").current.epoch, rack_id="r")
    assert len(decision.records) == 1
    assert rig.group.epoch == epoch


def test_a_topic_that_comes_later_is_noticed() -> None:
    rig = ready(t=1)
    epoch = rig.member("a").current.epoch
    rig.heartbeat("a", epoch, topics=frozenset({"t", "new"}))
    rig.catalog.make("new", 2)
    rig.is_stale = True
    assert rig.decide("a", rig.member("a").current.epoch).lacks_queues
    rig.make_queues()
    answer = rig.heartbeat("a", rig.member("a").current.epoch)
    assert answer.assignment == rig.partitions(t=[0], new=[0, 1])


# Queues


def test_a_new_topic_starts_where_the_setting_says() -> None:
    rig = ShareRig(t=2)
    rig.join("a", "t")
    assert rig.make_queues() == {rig.topic("t"): {0: BY_SETTING, 1: BY_SETTING}}


def test_partitions_that_are_added_start_at_their_beginning() -> None:
    rig = ready(t=2)
    rig.catalog.grow("t", 4)
    assert rig.make_queues() == {rig.topic("t"): {2: AT_BEGINNING, 3: AT_BEGINNING}}


def test_partitions_added_while_the_first_are_asked_for_have_their_turn_afterwards() -> None:
    rig = ShareRig(t=2)
    rig.join("a", "t")
    rig.apply([initializing(rig.group, missing_queues(rig.group, rig.catalog))])
    rig.catalog.grow("t", 3)
    assert rig.make_queues() == {rig.topic("t"): {0: BY_SETTING, 1: BY_SETTING}}
    assert rig.make_queues() == {rig.topic("t"): {2: AT_BEGINNING}}


def test_a_topic_that_was_made_again_has_other_queues() -> None:
    rig = ready(t=2)
    del rig.catalog.topics["t"]
    again = rig.catalog.make("t", 1)
    assert rig.make_queues() == {again: {0: BY_SETTING}}


def test_queues_whose_making_has_an_unknown_outcome_are_asked_for_again() -> None:
    rig = ShareRig(t=2)
    rig.join("a", "t")
    asked = missing_queues(rig.group, rig.catalog)
    rig.apply([initializing(rig.group, asked)])
    assert missing_queues(rig.group, rig.catalog) == asked


def test_queues_of_a_topic_that_went_meanwhile_are_not_kept() -> None:
    rig = ShareRig(t=2)
    rig.join("a", "t")
    asked = missing_queues(rig.group, rig.catalog)
    rig.apply([initializing(rig.group, asked)])
    rig.apply([initialized(rig.group, asked, frozenset())])
    assert rig.group.queues == KeptQueues()


def test_all_queues_of_a_group_are_deleted_with_it() -> None:
    rig = ready(t=2, u=1)
    rig.catalog.grow("u", 2)
    rig.apply([initializing(rig.group, missing_queues(rig.group, rig.catalog))])
    rig.fence("a")
    rig.apply([deleting(rig.group)])
    names = {rig.topic("t"): "t", rig.topic("u"): "u"}
    assert rig.group.queues == KeptQueues(deleting=names)


def test_a_topic_that_is_read_again_is_not_deleted_any_more() -> None:
    rig = ready(t=1)
    rig.fence("a")
    rig.apply([deleting(rig.group)])
    rig.join("a", "t")
    rig.make_queues()
    kept = {rig.topic("t"): NamedPartitions("t", frozenset({0}))}
    assert rig.group.queues == KeptQueues(initialized=kept)


def test_a_deleted_topic_is_forgotten() -> None:
    rig = ready(t=2, u=1)
    gone = rig.topic("t")
    assert forgotten(rig.group, lambda topic_id: topic_id.int == 99) is None
    record = forgotten(rig.group, lambda topic_id: topic_id == gone)
    assert record is not None
    rig.apply([record])
    assert rig.group.queues.initialized.keys() == {rig.topic("u")}
