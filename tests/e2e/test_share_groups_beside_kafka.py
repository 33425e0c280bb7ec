"""A long conversation about share groups goes as it does with Kafka."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.apache_kafka import apache_kafka
from tests.e2e.beside_kafka import Brokers, from_both
from tests.e2e.clients.java import missing
from tests.e2e.consumer_session import Said
from tests.e2e.processes import Broker
from tests.e2e.share_session import (
    GROUP_SIZE_MAX,
    Ids,
    ShareSession,
    choose_topics,
    converse,
    make_candidates,
)

# No member of a slow run is taken as gone.
SESSION_TIMEOUT_MS = "600000"
PREFIX = "p-"
SEEDS = (1, 2, 3, 4)
STEPS_MIN = 400


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Brokers]:
    if missing():
        pytest.skip(f"not installed: {', '.join(missing())}")
    settings = {
        "group.share.max.session.timeout.ms": SESSION_TIMEOUT_MS,
        "group.share.session.timeout.ms": SESSION_TIMEOUT_MS,
        "group.share.max.size": str(GROUP_SIZE_MAX),
        # So that a topic of groups has as many partitions as Kafka's here.
        "offsets.topic.num.partitions": "1",
    }
    flags = [flag for name, value in settings.items() for flag in ("--set", f"{name}={value}")]
    ours = Broker(tmp_path / "data", *flags).start()
    try:
        # Assignments are made at once and inside the heartbeat, or answers depend on time.
        with apache_kafka(
            tmp_path,
            group_share_assignment_interval_ms="0",
            group_share_assignor_offload_enable="false",
            group_consumer_assignment_interval_ms="0",
            group_consumer_assignor_offload_enable="false",
            group_share_max_session_timeout_ms=SESSION_TIMEOUT_MS,
            group_share_session_timeout_ms=SESSION_TIMEOUT_MS,
            group_share_max_size=str(GROUP_SIZE_MAX),
            share_coordinator_state_topic_num_partitions="1",
            share_coordinator_state_topic_replication_factor="1",
            share_coordinator_state_topic_min_isr="1",
        ) as theirs:
            yield Brokers(ours.bootstrap, theirs)
    finally:
        ours.close()


@pytest.mark.slow
@pytest.mark.xdist_group("apache-kafka")
def test_a_scripted_session_has_the_answers_of_kafka(both: Brokers) -> None:
    our_ids, their_ids = from_both(both, lambda address: make_candidates(address, PREFIX))
    their_names, our_names = choose_topics(their_ids, our_ids)
    topics = {both.penstock: (our_ids, our_names), both.kafka: (their_ids, their_names)}
    ours, theirs = from_both(both, lambda address: answers(address, *topics[address]))
    assert len(theirs) > STEPS_MIN
    told_again = 0
    for number, (said, expected) in enumerate(zip(ours, theirs, strict=False)):
        if is_behind(said, expected):
            assert said.answer["assignment"] is not None
            said.answer["assignment"] = None
            told_again += 1
        # What follows the first difference is only its consequence.
        assert said == expected, f"step {number}: {expected.label}"
    assert len(ours) == len(theirs)
    assert told_again > 0


def is_behind(said: Said, expected: Said) -> bool:
    """Members that are an epoch behind are told what they have, which Kafka does not do."""
    if not expected.label.startswith(("epoch", "previous", "stale")):
        return False
    is_untold = expected.answer["error_code"] == "NONE" and expected.answer["assignment"] is None
    return bool(is_untold and said.answer["assignment"] is not None)


def answers(bootstrap: str, ids: Ids, names: list[str]) -> list[Said]:
    session = ShareSession(bootstrap, PREFIX, ids, names)
    try:
        converse(session, SEEDS)
    finally:
        session.close()
    return session.comparable()
