"""What a share group's dead-letter topic holds after a run: each record that was given up, once for
each time that it was brought back, with headers that say so, and nothing else."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from penstock.cluster.config_decisions import Edit, GroupResource, Operation
from penstock.cluster.dead_letter_settings import TOPIC_NAME
from penstock.model.errors import Refused
from penstock.queues.dead_letters import (
    DELIVERY_COUNT,
    GROUP,
    MESSAGE,
    OFFSET,
    PARTITION,
    REDRIVES,
    REDRIVES_MAX,
    TOPIC,
)
from penstock.records.batch import decode_records, parse_header
from penstock.records.record import Record
from penstock.replication.replica import Replica
from tests.sim.nodes.node import SimulatedNode
from tests.sim.nodes.queues import ATTEMPTS_MAX, Ledger, Story
from tests.sim.nodes.queues import GROUP as QUEUE_GROUP
from tests.sim.replicas.history import require

DLQ = "dlq.data"
_TOO_OFTEN = "Offset delivery count exceeded the threshold."
_EXPIRED = "Record expired before it was delivered."


class FoundLetter(NamedTuple):
    partition: int
    offset: int
    attempts: int
    message: str
    redrives: int
    record: Record
    found_in: int


async def enable(node: SimulatedNode) -> bool:
    """The group has a dead-letter topic from now on."""
    assert node.server is not None
    # Its other settings stay.
    edits = [Edit(TOPIC_NAME, Operation.SET, DLQ)]
    try:
        (refused,) = await node.server.cluster.edit_configs([(GroupResource(QUEUE_GROUP), edits)])
    except Refused:
        return False
    return refused is None


def on_the_way(nodes: Sequence[SimulatedNode]) -> str:
    """Which queues still have something to send; empty if none has."""
    for node in nodes:
        if node.server is not None:
            for key in node.server.services.queues._coordinators.with_letters():
                return f"{key} has dead letters on their way"
    return ""


def records_in(replica: Replica) -> Iterator[Record]:
    offset = replica.log_start_offset
    while offset < replica.high_watermark:
        found = replica.read_committed(offset, 1_000_000)
        assert found is not None
        data = found.read()
        found.release()
        while data:
            header = parse_header(data)
            yield from decode_records(data[: header.size])
            offset, data = header.next_offset, data[header.size :]


def check_letters(
    ledger: Ledger,
    topic: str,
    letters: Mapping[int, Replica],
    data: Mapping[int, Replica],
) -> int:
    """Gives how many there are. `letters` and `data` are replicas of each partition."""
    found = [
        found_letter(record, topic, index)
        for index, replica in letters.items()
        for record in records_in(replica)
    ]
    places = [(letter.partition, letter.offset) for letter in found]
    _check_lives(found)
    originals = {
        (index, record.offset): record
        for index, replica in data.items()
        for record in records_in(replica)
    }
    for letter in found:
        _check_content(letter, originals, len(letters))
        _check_given_up(ledger, letter)
    has_letter = set(places)
    for (partition, offset), record in originals.items():
        if offset >= ledger.starts.get(partition, 2**60):
            story = ledger.stories.get((partition, offset), Story())
            is_expired = story.may_be_expired and ledger.rules.may_lack_letter(record)
            is_explained = story.may_be_acked or is_expired or (partition, offset) in has_letter
            require(is_explained, f"{partition}:{offset} was given up, and has no letter: {story}")
    return len(found)


def _check_lives(found: Sequence[FoundLetter]) -> None:
    """A record has one letter for each of its lives, and no more lives than are allowed."""
    lives: dict[tuple[int, int], list[int]] = {}
    for letter in found:
        lives.setdefault((letter.partition, letter.offset), []).append(letter.redrives)
    for place, redrives in lives.items():
        is_right = redrives == list(range(len(redrives))) and max(redrives) <= REDRIVES_MAX
        require(is_right, f"the dead letters of {place} are of its lives {redrives}")


async def redrive(node: SimulatedNode, ledger: Ledger, topic: str, limit: int) -> None:
    """Somebody brings letters back, and may be interrupted."""
    assert node.server is not None
    ledger.redrives += 1
    with suppress(Refused):
        result = await node.server.services.queues.redrive(QUEUE_GROUP, topic, limit)
        ledger.brought_back += result.count


def found_letter(record: Record, topic: str, found_in: int) -> FoundLetter:
    said = {name: (value or b"").decode() for name, value in record.headers}
    require((said[TOPIC], said[GROUP]) == (topic, QUEUE_GROUP), f"a letter is of {said}")
    return FoundLetter(
        int(said[PARTITION]),
        int(said[OFFSET]),
        int(said[DELIVERY_COUNT]),
        said[MESSAGE],
        int(said.get(REDRIVES, "0")),
        record,
        found_in,
    )


def _check_content(
    letter: FoundLetter, originals: Mapping[tuple[int, int], Record], partitions: int
) -> None:
    original = originals[letter.partition, letter.offset]
    is_same = (letter.record.key, letter.record.value, letter.record.timestamp_ms) == (
        original.key,
        original.value,
        original.timestamp_ms,
    )
    require(is_same, f"{letter} is a copy of {original}")
    require(letter.found_in == letter.partition % partitions, f"{letter} is in a wrong partition")


def _check_given_up(ledger: Ledger, letter: FoundLetter) -> None:
    story = ledger.stories.get((letter.partition, letter.offset), Story())
    if letter.message == _TOO_OFTEN:
        attempts = max((lease.attempt for lease in story.leases), default=0)
        possible = attempts + ledger.unheard[letter.partition]
        is_right = letter.attempts == ATTEMPTS_MAX and possible >= ATTEMPTS_MAX
    elif letter.message == _EXPIRED:
        is_right = story.may_be_expired and ledger.rules.keeps_expired
    else:
        is_right = 0 < letter.attempts <= ATTEMPTS_MAX and story.may_be_rejected
    require(is_right, f"nobody gave up {letter}: {story}")
