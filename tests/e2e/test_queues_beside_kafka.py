"""A long conversation about queues goes as it does with Kafka."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.apache_kafka import apache_kafka
from tests.e2e.beside_kafka import Brokers, from_both
from tests.e2e.clients.java import missing
from tests.e2e.processes import Broker
from tests.e2e.queue_conversation import converse, deviations
from tests.e2e.queue_session import Said, Share

# No member of a slow run is taken as gone, and no lease runs out.
LONG_MS = "600000"
SEEDS = (1, 2, 3, 4, 5, 6)
STEPS_MIN = 500
SETTINGS = {
    "group.share.max.session.timeout.ms": LONG_MS,
    "group.share.session.timeout.ms": LONG_MS,
    "group.share.max.record.lock.duration.ms": LONG_MS,
    "group.share.record.lock.duration.ms": LONG_MS,
}
# Where Penstock means to answer otherwise than Kafka: by the beginning of what is said, the answers
# of both.
NONE, LOCK_MS = "NONE", int(LONG_MS)
DEVIATIONS = {
    # Kafka fails with the topic's name, which it does not have, and again with each later request.
    "the id of no topic": (
        (NONE, LOCK_MS, {("nobody", 0): ("UNKNOWN_TOPIC_ID", NONE, [], [])}),
        ("UNKNOWN_SERVER_ERROR", 0, {}),
    ),
    # Kafka stores it.
    "alter offsets of g-deviations: {('t', 0): -5}": (
        (NONE, {("t", 0): "INVALID_REQUEST"}),
        (NONE, {("t", 0): NONE}),
    ),
    # Kafka does not know the number when it builds its answer.
    "unknown acquire mode": (("INVALID_REQUEST", 0, {}), ("UNKNOWN_SERVER_ERROR", 0, {})),
    # A partition that a session has forgotten is released with the others when the session ends.
    "left in a forgotten partition": (
        (NONE, LOCK_MS, {("t", 0): (NONE, NONE, [(0, 1, 2)], [b"v0", b"v1"])}),
        (NONE, LOCK_MS, {}),
    ),
}


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Brokers]:
    if missing():
        pytest.skip(f"not installed: {', '.join(missing())}")
    flags = [flag for name, value in SETTINGS.items() for flag in ("--set", f"{name}={value}")]
    ours = Broker(tmp_path / "data", *flags).start()
    try:
        with apache_kafka(
            tmp_path,
            share_coordinator_state_topic_replication_factor="1",
            share_coordinator_state_topic_min_isr="1",
            share_coordinator_state_topic_num_partitions="2",
            group_share_assignment_interval_ms="0",
            group_share_assignor_offload_enable="false",
            **{name.replace(".", "_"): value for name, value in SETTINGS.items()},
        ) as theirs:
            yield Brokers(ours.bootstrap, theirs)
    finally:
        ours.close()


@pytest.mark.timeout(300)
@pytest.mark.xdist_group("apache-kafka")
def test_a_scripted_session_has_the_answers_of_kafka(both: Brokers) -> None:
    ours, theirs = from_both(both, answers)
    assert len(theirs) > STEPS_MIN
    met = set()
    for number, (said, expected) in enumerate(zip(ours, theirs, strict=False)):
        if found := [each for each in DEVIATIONS if expected.label.startswith(each)]:
            assert said.label == expected.label
            assert (said.answer, expected.answer) == DEVIATIONS[found[0]], expected.label
            met.add(found[0])
            continue
        # What follows the first difference is only its consequence.
        assert said == expected, f"step {number}: {expected.label}"
    assert len(ours) == len(theirs)
    assert met == DEVIATIONS.keys()


def answers(bootstrap: str) -> list[Said]:
    share = Share(bootstrap)
    try:
        converse(share, SEEDS)
        deviations(share)
    finally:
        share.close()
    return share.said
