"""A consumer group (KIP-848) as its members see it: epochs, assignments, and who is fenced."""

import pytest

from penstock.groups.modern_group import ModernState
from penstock.groups.modern_records import (
    CurrentRecord,
    ExpressionRecord,
    MemberState,
    TargetRecord,
)
from penstock.model.errors import Reason, Refused
from penstock.model.ids import MemberId
from tests.unit.groups.consumer_rig import ConsumerRig


def refusal(rig: ConsumerRig, *args: object, **fields: object) -> Reason:
    before = list(rig.log)
    with pytest.raises(Refused) as refused:
        rig.heartbeat(*args, **fields)  # type: ignore[arg-type]
    assert rig.log == before, "a refusal changes nothing"
    return refused.value.reason


# Joining


def test_the_first_member_gets_everything_at_once() -> None:
    rig = ConsumerRig(t=3)
    answer = rig.join("a", "t")
    assert (answer.member_id, answer.member_epoch) == ("a", 2)
    assert answer.heartbeat_interval_ms == 5_000
    assert answer.assignment == rig.partitions(t=range(3))
    assert rig.group.state is ModernState.STABLE


def test_a_heartbeat_without_news_writes_nothing_and_tells_nothing() -> None:
    rig = ConsumerRig(t=3)
    rig.join("a", "t")
    decision = rig.decide("a", 2)
    assert decision.records == []
    assert decision.answer.assignment is None
    assert decision.answer.member_epoch == 2
    assert rig.lived_on == 1
    rig.decide("a", 2, client_id="another")
    rig.decide("a", 2, owned=rig.partitions(t=range(3)))
    assert rig.lived_on == 1


def test_a_full_heartbeat_is_told_all_and_writes_nothing() -> None:
    rig = ConsumerRig(t=3)
    rig.join("a", "t")
    said = {"topics": frozenset({"t"}), "rebalance_timeout_ms": 30_000}
    decision = rig.decide("a", 2, owned=rig.partitions(t=range(3)), **said)
    assert decision.records == []
    assert decision.answer.assignment == rig.partitions(t=range(3))


def test_a_topic_that_does_not_exist_is_waited_for() -> None:
    rig = ConsumerRig()
    assert rig.join("a", "t").assignment == {}
    rig.catalog.make("t", 2)
    rig.is_stale = True
    answer = rig.heartbeat("a", 2)
    assert (answer.member_epoch, answer.assignment) == (3, rig.partitions(t=range(2)))


@pytest.mark.parametrize("expression", [None, ""])
def test_a_first_member_that_reads_nothing_yet_is_in_the_group(expression: str | None) -> None:
    rig = ConsumerRig(t=1)
    answer = rig.join("a", expression=expression)
    # Its epoch is not 0, with which it would join once more.
    assert (answer.member_epoch, answer.assignment) == (1, {})
    assert (rig.group.epoch, rig.group.target_epoch) == (1, 1)
    assert rig.group.state is ModernState.STABLE
    rig.is_stale = True
    assert rig.decide("a", 1).records == []
    answer = rig.heartbeat("a", 1, topics=frozenset({"t"}))
    assert (answer.member_epoch, answer.assignment) == (2, rig.partitions(t=[0]))


def test_a_group_has_no_room_for_more_than_its_limit() -> None:
    rig = ConsumerRig(t=1)
    rig.members_max = 1
    rig.join("a", "t", instance_id="one")
    full = Reason.GROUP_MAX_SIZE_REACHED
    assert refusal(rig, "b", 0, topics=frozenset({"t"}), owned={}) is full
    # The instance is in it already.
    rig.heartbeat("a", -2, instance_id="one")
    assert rig.join("b", "t", instance_id="one").member_epoch == 2


# Moving partitions


def test_a_partition_is_handed_over_only_after_it_was_given_up() -> None:
    rig = ConsumerRig(t=4)
    rig.join("a", "t")
    b = rig.join("b", "t")
    assert (b.member_epoch, b.assignment) == (3, {})
    assert rig.member("b").current.state is MemberState.UNRELEASED_PARTITIONS
    assert rig.group.state is ModernState.RECONCILING

    a = rig.heartbeat("a", 2)
    assert (a.member_epoch, a.assignment) == (2, rig.partitions(t=[0, 2]))
    assert rig.member("a").current.state is MemberState.UNREVOKED_PARTITIONS
    # It still owns all of it.
    assert rig.heartbeat("a", 2, owned=rig.partitions(t=range(4))).member_epoch == 2
    assert rig.heartbeat("b", 3).assignment is None

    a = rig.heartbeat("a", 2, owned=rig.partitions(t=[0, 2]))
    assert (a.member_epoch, a.assignment) == (3, None)
    assert rig.heartbeat("b", 3).assignment == rig.partitions(t=[1, 3])
    assert rig.group.state is ModernState.STABLE


def test_partitions_of_a_member_that_left_are_free_at_once() -> None:
    rig = ConsumerRig(t=2)
    rig.join("a", "t")
    rig.join("b", "t")
    left = rig.heartbeat("a", -1)
    assert (left.member_id, left.member_epoch) == ("a", -1)
    assert rig.group.state is ModernState.ASSIGNING
    answer = rig.heartbeat("b", 3)
    assert (answer.member_epoch, answer.assignment) == (4, rig.partitions(t=range(2)))


def test_a_member_is_brought_to_the_newest_target_while_it_gives_up() -> None:
    rig = ConsumerRig(t=4)
    rig.join("a", "t")
    rig.join("b", "t")
    rig.heartbeat("a", 2)
    rig.join("c", "t")
    answer = rig.heartbeat("a", 2, owned=rig.partitions(t=[0, 2]))
    # In turn, 0 and 3 are its own now: 2 has to go as well before it gets 3.
    assert (answer.member_epoch, answer.assignment) == (2, rig.partitions(t=[0]))
    answer = rig.heartbeat("a", 2, owned=rig.partitions(t=[0]))
    assert (answer.member_epoch, answer.assignment) == (4, rig.partitions(t=[0, 3]))


def test_a_member_that_unsubscribes_gives_up_what_it_read() -> None:
    rig = ConsumerRig(t=1, u=1)
    rig.join("a", "t", "u")
    answer = rig.heartbeat("a", 2, topics=frozenset({"u"}))
    assert (answer.member_epoch, answer.assignment) == (2, rig.partitions(u=[0]))
    answer = rig.heartbeat("a", 2, owned=rig.partitions(u=[0]))
    assert (answer.member_epoch, answer.assignment) == (3, None)


def test_new_partitions_are_assigned() -> None:
    rig = ConsumerRig(t=1)
    rig.join("a", "t")
    rig.catalog.grow("t", 3)
    assert rig.heartbeat("a", 2).assignment is None
    rig.is_stale = True
    answer = rig.heartbeat("a", 2)
    assert (answer.member_epoch, answer.assignment) == (3, rig.partitions(t=range(3)))


def test_a_deleted_topic_is_given_up() -> None:
    rig = ConsumerRig(t=1, u=1)
    rig.join("a", "t", "u")
    kept = rig.partitions(u=[0])
    del rig.catalog.topics["t"]
    rig.is_stale = True
    assert rig.heartbeat("a", 2).assignment == kept
    answer = rig.heartbeat("a", 2, owned=kept)
    assert answer.member_epoch == 3


def test_a_topic_made_again_has_other_partitions() -> None:
    rig = ConsumerRig(t=1)
    rig.join("a", "t")
    rig.catalog.make("t", 1)
    rig.is_stale = True
    assert rig.heartbeat("a", 2).assignment == {}
    assert rig.heartbeat("a", 2, owned={}).assignment == rig.partitions(t=[0])


def test_topics_that_did_not_change_bump_nothing() -> None:
    rig = ConsumerRig(t=1)
    rig.join("a", "t")
    rig.catalog.make("other", 1)
    rig.is_stale = True
    assert rig.decide("a", 2).records == []


def test_only_targets_that_changed_are_written() -> None:
    rig = ConsumerRig(t=2)
    rig.join("a", "t")
    rig.join("b", "t")
    decision = rig.decide("c", 0, topics=frozenset({"t"}), owned={}, rebalance_timeout_ms=1)
    targets = [record for record in decision.records if isinstance(record, TargetRecord)]
    assert [record.member_id for record in targets] == ["c"]


def test_the_assignor_that_most_members_ask_for_is_used() -> None:
    rig = ConsumerRig(t=2)
    rig.join("a", "t", assignor="backwards")
    rig.join("b", "t")
    assert preferred(rig) == "backwards"
    assert rig.group.target(MemberId("a")) == rig.partitions(t=[1])
    rig.join("c", "t", assignor="in-turn")
    rig.join("d", "t", assignor="in-turn")
    assert preferred(rig) == "in-turn"


def preferred(rig: ConsumerRig, member_id: str | None = None) -> str | None:
    asking = None if member_id is None else MemberId(member_id)
    return rig.group.preferred_assignor(rig.around.assignors, asking)


@pytest.mark.parametrize(("first", "second"), [("in-turn", "backwards"), ("backwards", "in-turn")])
def test_equal_votes_for_assignors_are_decided_as_in_kafka(first: str, second: str) -> None:
    rig = ConsumerRig(t=2)
    assert preferred(rig) is None
    rig.join("a", "t", assignor=first)
    rig.join("b", "t", assignor=second)
    own = {"in-turn": 0, "backwards": 1}[second]
    assert rig.group.target(MemberId("a")) == rig.partitions(t=[own])
    # The only vote for an assignor counts while its member asks for the target.
    assert (preferred(rig, "a"), preferred(rig, "b")) == (first, second)
    assert preferred(rig) == "in-turn"
    rig.join("c", "t", assignor=first)
    rig.join("d", "t", assignor=second)
    assert preferred(rig, "a") == preferred(rig, "d") == "in-turn"


# Epochs


def test_a_member_that_missed_an_answer_may_be_one_epoch_behind() -> None:
    rig = ConsumerRig(t=2)
    rig.join("a", "t")
    rig.join("b", "t")
    rig.heartbeat("a", 2)
    rig.heartbeat("a", 2, owned=rig.partitions(t=[0]))
    assert rig.member("a").current.epoch == 3
    assert rig.heartbeat("a", 2, owned=rig.partitions(t=[0])).member_epoch == 3
    # It has what is another's now, or does not say.
    fenced = Reason.FENCED_MEMBER_EPOCH
    assert refusal(rig, "a", 2, owned=rig.partitions(t=[0, 1])) is fenced
    assert refusal(rig, "a", 2) is fenced


def test_a_member_that_missed_an_answer_is_told_what_it_has() -> None:
    """It gave everything up, and what it had is another's. Without a word about that it would go on
    with what it was told last, of which it may not have begun to use all."""
    rig = ConsumerRig(t=2)
    told = rig.join("a", "t").assignment
    assert told == rig.partitions(t=range(2))
    rig.join("b", "t")
    # Of what it was told to keep, it uses nothing yet.
    assert rig.heartbeat("a", 2).assignment == rig.partitions(t=[0])
    rig.fence("b")
    rig.join("b", "t", assignor="backwards")
    lost = rig.heartbeat("a", 2, owned={})
    assert lost.member_epoch > 2
    rig.heartbeat("b", rig.member("b").current.epoch, owned={})
    again = rig.heartbeat("a", 2, owned={})
    now = {t: frozenset(epochs) for t, epochs in rig.member("a").current.assigned.items()}
    assert (again.member_epoch, again.assignment) == (lost.member_epoch, now)
    assert rig.heartbeat("a", again.member_epoch).assignment is None, "once is enough"


@pytest.mark.parametrize("epoch", [2, 3, 6])
def test_any_other_epoch_is_fenced(epoch: int) -> None:
    rig = ConsumerRig(t=2)
    for name in "abc":
        rig.join(name, "t")
    assert rig.member("c").current.epoch == 4
    assert refusal(rig, "c", epoch, owned={}) is Reason.FENCED_MEMBER_EPOCH


def test_a_fenced_member_joins_again_under_its_id() -> None:
    rig = ConsumerRig(t=2)
    rig.join("a", "t")
    answer = rig.join("a", "t")
    assert (answer.member_epoch, answer.assignment) == (2, rig.partitions(t=range(2)))


def test_who_is_not_a_member_is_told_so() -> None:
    rig = ConsumerRig(t=1)
    rig.join("a", "t")
    for epoch in (2, -1):
        assert refusal(rig, "b", epoch) is Reason.UNKNOWN_MEMBER_ID
    rig.fence("a")
    assert refusal(rig, "a", 2) is Reason.UNKNOWN_MEMBER_ID
    assert rig.group.state is ModernState.EMPTY


def test_partitions_remember_the_epoch_in_which_they_were_assigned() -> None:
    rig = ConsumerRig(t=1)
    rig.join("a", "t")
    rig.catalog.grow("t", 2)
    rig.is_stale = True
    rig.heartbeat("a", 2)
    assert rig.member("a").current.assigned == {rig.topic("t"): {0: 2, 1: 3}}


# Static members


def test_a_static_member_comes_back_to_what_it_had() -> None:
    rig = ConsumerRig(t=2)
    rig.join("a", "t", instance_id="one")
    rig.join("b", "t", instance_id="two")
    answer = rig.heartbeat("a", -2, instance_id="one")
    assert (answer.member_id, answer.member_epoch) == ("a", -2)
    assert rig.heartbeat("b", 3, instance_id="two").assignment is None
    # It owned both until it left; what was to be given up is free since.
    answer = rig.join("a2", "t", instance_id="one")
    assert answer.member_epoch == 3
    assert rig.group.epoch == 3, "nothing was assigned again"
    assert rig.group.member(MemberId("a")) is None
    assert refusal(rig, "a", 3, instance_id="one") is Reason.FENCED_INSTANCE_ID


def test_an_instance_that_has_not_left_is_not_replaced() -> None:
    rig = ConsumerRig(t=2)
    rig.join("a", "t", instance_id="one")
    said = {"topics": frozenset({"t"}), "owned": {}, "rebalance_timeout_ms": 1}
    unreleased = Reason.UNRELEASED_INSTANCE_ID
    assert refusal(rig, "b", 0, instance_id="one", **said) is unreleased
    assert refusal(rig, "b", 2, instance_id="one") is Reason.FENCED_INSTANCE_ID
    assert refusal(rig, "b", 2, instance_id="two") is Reason.UNKNOWN_MEMBER_ID
    assert refusal(rig, "b", -2, instance_id="two") is Reason.UNKNOWN_MEMBER_ID
    assert refusal(rig, "b", -1, instance_id="one") is Reason.FENCED_INSTANCE_ID


def test_a_static_member_that_is_away_is_fenced_under_its_epoch() -> None:
    rig = ConsumerRig(t=2)
    rig.join("a", "t", instance_id="one")
    rig.heartbeat("a", -2, instance_id="one")
    assert refusal(rig, "a", 2, instance_id="one") is Reason.FENCED_MEMBER_EPOCH


def test_a_static_member_leaves_for_good() -> None:
    rig = ConsumerRig(t=2)
    rig.join("a", "t", instance_id="one")
    rig.heartbeat("a", -1, instance_id="one")
    assert rig.group.static_id("one") is None
    assert rig.join("b", "t", instance_id="one").member_epoch == 4


# Regular expressions


def test_an_expression_follows_the_topics_that_match() -> None:
    rig = ConsumerRig(logs_a=1, other=1)
    answer = rig.join("a", expression="logs")
    # As in Kafka, what it matches is found out after the answer.
    assert (answer.member_epoch, answer.assignment) == (1, {})
    answer = rig.heartbeat("a", 1)
    assert (answer.member_epoch, answer.assignment) == (2, rig.partitions(logs_a=[0]))
    rig.catalog.make("logs_b", 1)
    rig.is_stale = True
    answer = rig.heartbeat("a", 2)
    assert (answer.member_epoch, answer.assignment) == (3, rig.partitions(logs_a=[0], logs_b=[0]))
    assert rig.group.is_subscribed_to("logs_b")


def test_names_and_an_expression_add_up() -> None:
    rig = ConsumerRig(logs=1, t=1, u=1)
    assert rig.join("a", "t", expression="logs").assignment == rig.partitions(t=[0])
    answer = rig.heartbeat("a", 2)
    assert (answer.member_epoch, answer.assignment) == (3, rig.partitions(logs=[0], t=[0]))
    answer = rig.heartbeat("a", 3, expression="")
    assert answer.assignment == rig.partitions(t=[0])
    assert not rig.group.expressions


def test_a_member_whose_expression_is_known_shares_at_once() -> None:
    rig = ConsumerRig(logs=2)
    rig.join("a", expression="logs")
    # Any member's heartbeat looks up what another's expression matches.
    b = rig.join("b", expression="logs")
    assert (b.member_epoch, rig.group.target(MemberId("b"))) == (2, rig.partitions(logs=[1]))
    assert rig.join("c", expression="logs").member_epoch == 3


def test_an_expression_gets_its_share_of_topics_that_others_read_by_name() -> None:
    rig = ConsumerRig(t=2)
    rig.join("a", "t")
    assert rig.join("b", expression="t").member_epoch == 2
    # The topics of the group are the same as before, but not those of its members.
    rig.heartbeat("a", 2)
    assert rig.group.epoch == 3
    assert rig.group.target(MemberId("b")) == rig.partitions(t=[1])


def test_an_expression_that_matches_nothing_takes_away_what_the_one_before_gave() -> None:
    rig = ConsumerRig(t=2)
    rig.join("a", "t")
    rig.join("b", expression="t")
    rig.heartbeat("a", 2)
    rig.heartbeat("a", 2, owned=rig.partitions(t=[0]))
    assert rig.heartbeat("b", 2).assignment == rig.partitions(t=[1])
    rig.heartbeat("b", 3, expression="nothing", owned=rig.partitions(t=[1]))
    assert rig.heartbeat("b", 3, owned=rig.partitions(t=[1])).assignment == {}
    assert rig.heartbeat("b", 3, owned={}).member_epoch == 4
    assert rig.heartbeat("a", 3).assignment == rig.partitions(t=range(2))


def test_an_expression_goes_with_the_last_member_that_has_it() -> None:
    rig = ConsumerRig(logs=2)
    rig.join("a", expression="logs")
    rig.join("b", expression="logs")
    rig.fence("a")
    assert rig.group.expressions
    rig.fence("b")
    assert not rig.group.expressions
    assert isinstance(rig.log[-2], ExpressionRecord)


def test_an_expression_that_is_none_changes_nothing() -> None:
    rig = ConsumerRig(t=1)
    rig.join("a", "t")
    invalid = Reason.INVALID_REGULAR_EXPRESSION
    assert refusal(rig, "a", 2, expression="*") is invalid
    assert refusal(rig, "b", 0, expression="*", owned={}) is invalid


@pytest.mark.parametrize(
    ("subscriptions", "is_homogeneous"),
    [
        ([("t",), ("t",)], True),
        ([("t",), ("t", "u")], False),
        ([("/x",), ("/x",)], True),
        ([("/x",), ("/y",)], False),
        ([("/x",), ("t",)], False),
    ],
)
def test_members_that_read_the_same_are_known(
    subscriptions: list[tuple[str, ...]], is_homogeneous: bool
) -> None:
    rig = ConsumerRig(t=1, u=1)
    for number, words in enumerate(subscriptions):
        expression = words[0][1:] if words[0].startswith("/") else None
        topics = () if expression else words
        rig.join(f"m{number}", *topics, expression=expression)
    assert rig.group.is_homogeneous is is_homogeneous


# What is stored


def test_a_state_of_a_later_version_makes_the_member_begin_again() -> None:
    rig = ConsumerRig(t=1)
    rig.join("a", "t")
    rig.join("b", "t")
    codec_value = rig.member("a").current
    unknown = type(codec_value)(
        epoch=2, previous_epoch=0, state=MemberState.UNKNOWN, assigned=codec_value.assigned
    )
    rig.apply([CurrentRecord(rig.group.group_id, MemberId("a"), unknown)])
    assert refusal(rig, "a", 2) is Reason.FENCED_MEMBER_EPOCH
    assert rig.join("a", "t").member_epoch == 3
