"""A long conversation about groups of the new consumer protocol goes as it does with Kafka."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.apache_kafka import apache_kafka
from tests.e2e.beside_kafka import Brokers, from_both
from tests.e2e.clients.java import missing
from tests.e2e.consumer_session import Said, Session, converse
from tests.e2e.mixed_session import MIXED
from tests.e2e.processes import Broker

# No member of a slow run is taken as gone.
SESSION_TIMEOUT_MS = "600000"
SEEDS = (1, 2, 3, 4)
STEPS_MIN = 600
# Where Penstock means to answer otherwise than Kafka, by the beginning of what is said, with the
# errors of both. A member does not commit for a partition that is another's, or a commit that was
# under way for long could take back what the new owner has committed.
DEVIATIONS = {"commit g-another": ("STALE_MEMBER_EPOCH", "NONE")}


# Members that are an epoch behind are told what they have, which Kafka does not do.
BEHIND = ("last epoch", "stale")


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Brokers]:
    if missing():
        pytest.skip(f"not installed: {', '.join(missing())}")
    names = ("group.consumer.max.session.timeout.ms", "group.consumer.session.timeout.ms")
    flags = [flag for name in names for flag in ("--set", f"{name}={SESSION_TIMEOUT_MS}")]
    ours = Broker(tmp_path / "data", *flags).start()
    try:
        # Assignments are made at once and inside the heartbeat, or answers depend on time.
        with apache_kafka(
            tmp_path,
            group_consumer_assignment_interval_ms="0",
            group_consumer_assignor_offload_enable="false",
            group_consumer_max_session_timeout_ms=SESSION_TIMEOUT_MS,
            group_consumer_session_timeout_ms=SESSION_TIMEOUT_MS,
        ) as theirs:
            yield Brokers(ours.bootstrap, theirs)
    finally:
        ours.close()


@pytest.mark.xdist_group("apache-kafka")
def test_a_scripted_session_has_the_answers_of_kafka(both: Brokers) -> None:
    ours, theirs = from_both(both, lambda address: answers(address, is_java=address == both.kafka))
    assert len(theirs) > STEPS_MIN
    deviations = told_again = 0
    for number, (said, expected) in enumerate(zip(ours, theirs, strict=False)):
        if found := [each for each in DEVIATIONS if expected.label.startswith(each)]:
            assert said.label == expected.label
            assert (_commit_error(said), _commit_error(expected)) == DEVIATIONS[found[0]]
            deviations += 1
            continue
        if expected.label.startswith(BEHIND) and expected.answer["error_code"] == "NONE":
            assert expected.answer["assignment"] is None
            assert said.answer["assignment"] is not None
            said.answer["assignment"] = None
            told_again += 1
        # What follows the first difference is only its consequence.
        assert said == expected, f"step {number}: {expected.label}"
    assert len(ours) == len(theirs)
    assert deviations >= len(DEVIATIONS)
    assert told_again > 0


def _commit_error(said: Said) -> str:
    (topic,) = said.answer["topics"]
    (partition,) = topic["partitions"]
    return str(partition["error_code"])


def answers(bootstrap: str, *, is_java: bool) -> list[Said]:
    session = Session(bootstrap, "p-", is_java=is_java)
    try:
        converse(session, SEEDS, MIXED)
    finally:
        session.close()
    return session.comparable()
