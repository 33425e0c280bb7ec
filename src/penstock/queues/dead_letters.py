"""What a queue decides about its dead letters: pure, as all decisions about it.

leased -> dying (stored, with its reason) -> planned (stored) -> appended to the dead-letter topic
-> dead (stored together with the next sequence). A leader may fail between any two of these: the
next one goes on with what is stored, and at worst sends the same batch again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from penstock.model.trace_context import TRACE_HEADERS
from penstock.queues.commands import Change, Range, ShareSettings
from penstock.queues.layout import QueueKey
from penstock.queues.letters import Copies, Death, Letter, LetterState, Redriven, Sender
from penstock.queues.machine import ShareMachine
from penstock.records.record import Headers, Record

# A batch of letters; at least one record goes, however large.
PLAN_LETTERS_MAX: Final = 500
PLAN_BYTES_MAX: Final = 512 * 1024

# By KIP-1191.
TOPIC: Final = "__dlq.errors.topic"
PARTITION: Final = "__dlq.errors.partition"
OFFSET: Final = "__dlq.errors.offset"
GROUP: Final = "__dlq.errors.group"
DELIVERY_COUNT: Final = "__dlq.errors.delivery.count"
MESSAGE: Final = "__dlq.errors.message"
# Ours: the id of the topic, since another one may get its name.
TOPIC_ID: Final = "__penstock.topic.id"
# Ours: how often the record has come back from the dead.
REDRIVES: Final = "__penstock.redrives"
# Ours: how many dead-letter topics it has come to, one after the other: groups may read the letters
# of others, and give them up too.
GENERATION: Final = "__penstock.letters"
# Ours: for which group a record was appended to its topic again. Other share groups skip it.
REDRIVEN_FOR: Final = "__penstock.redriven.for"

_MESSAGES: Final = {
    Death.REJECTED: "Offset rejected by client.",
    Death.TRIED_TOO_OFTEN: "Offset delivery count exceeded the threshold.",
    # Kafka does not have it.
    Death.EXPIRED: "Record expired before it was delivered.",
}
_OURS: Final = frozenset(
    (
        TOPIC,
        PARTITION,
        OFFSET,
        GROUP,
        DELIVERY_COUNT,
        MESSAGE,
        TOPIC_ID,
        REDRIVES,
        GENERATION,
        REDRIVEN_FOR,
    )
)
# A record that was brought back so often, and died each time, stays dead.
REDRIVES_MAX: Final = 3
# A letter of a letter, and so on. What comes further goes in circles: groups read each other's.
GENERATIONS_MAX: Final = 10


def letters(dying: Range) -> Iterator[Letter]:
    for offset in range(dying.first, dying.last + 1):
        yield Letter(offset, dying.attempts, dying.death, dying.redrives)


def decide_plan(machine: ShareMachine, chosen: Sequence[Letter], sender: Sender) -> Change:
    """These are sent next."""
    return _only(machine, machine.letters.planned(tuple(chosen), sender))


def decide_shorter(machine: ShareMachine) -> Change:
    """The batch was refused as a whole, so perhaps because of one of its records."""
    return _only(machine, machine.letters.shortened())


def decide_arrived(machine: ShareMachine, count: int, settings: ShareSettings) -> Change:
    """The dead-letter topic has the first `count` letters of the plan."""
    plan = machine.letters.plan
    assert plan is not None
    offsets = [letter.offset for letter in plan.letters[:count]]
    return machine.decide_buried(offsets, settings, machine.letters.arrived(count))


def decide_dropped(machine: ShareMachine, *, keeps_sender: bool) -> Change:
    """Nothing of the plan was appended, and nothing will be."""
    return _only(machine, machine.letters.dropped(keeps_sender=keeps_sender))


def decide_no_letters(machine: ShareMachine, settings: ShareSettings) -> Change:
    """The group has no dead-letter topic any more: what was dying is dead."""
    state = machine.letters
    changed = state.dropped(keeps_sender=True) if state.plan is not None else None
    offsets = [letter.offset for each in machine.dying() for letter in letters(each)]
    return machine.decide_buried(offsets, settings, changed)


# Bringing back


def decide_copying(
    machine: ShareMachine, copies: Copies, copier: Sender, next_offset: int
) -> Change:
    """The log lacks these: they are appended to it next."""
    return _only(machine, machine.letters.copying(copies, copier, next_offset))


def decide_copied(machine: ShareMachine) -> Change:
    return _only(machine, machine.letters.copied())


def decide_uncopied(machine: ShareMachine, *, is_passed: bool) -> Change:
    return _only(machine, machine.letters.uncopied(is_passed=is_passed))


def decide_redriven(machine: ShareMachine, place: Redriven) -> Change:
    """There is nothing to bring back before this place."""
    return _only(machine, machine.letters.redriven_to(place, 0))


def copy_record(letter: Record | None, *, group: str, now_ms: int) -> Record:
    """What the topic gets back. Of a letter that is gone there is only the header."""
    mark = ((REDRIVEN_FOR, group.encode()),)
    if letter is None:
        return Record(timestamp_ms=now_ms, headers=mark)
    kept = tuple(each for each in letter.headers if each[0] not in _OURS)
    times = redrives_of(letter.headers) + 1
    headers = (*kept, *mark, (REDRIVES, str(times).encode()))
    return replace(letter, headers=headers)


class LetterOrigin(NamedTuple):
    """Which record of which queue a letter is of."""

    group: str
    topic: str
    partition: int
    offset: int
    redrives: int
    # Empty if the letter does not say.
    topic_id: str = ""


def origin_of(headers: Headers) -> LetterOrigin | None:
    """None for a record that is not a dead letter of ours, or of Kafka's."""
    said = dict(headers)
    try:
        group, topic = _text(said[GROUP]), _text(said[TOPIC])
        partition, offset = int(_text(said[PARTITION])), int(_text(said[OFFSET]))
        topic_id = _text(said.get(TOPIC_ID))
    except (KeyError, ValueError):
        return None
    if not (0 <= partition < 2**31 and 0 <= offset < 2**63):
        return None
    return LetterOrigin(group, topic, partition, offset, redrives_of(headers), topic_id)


def _text(value: bytes | None) -> str:
    return (value or b"").decode()


def _only(machine: ShareMachine, state: LetterState) -> Change:
    return Change(start=machine.start, letters=state)


def letter_record(
    letter: Letter,
    original: Record | None,
    *,
    key: QueueKey,
    topic: str,
    now_ms: int,
    is_copied: bool = True,
) -> Record:
    """What the dead-letter topic gets. Of a record that is gone from the log, and of one that is
    not to be copied, there are only the headers."""
    kept: Headers = ()
    redrives, generation = letter.redrives, 1
    if original is not None:
        generation = generation_of(original.headers) + 1
        redrives = max(redrives, redrives_of(original.headers))
        kept = tuple(each for each in original.headers if each[0] not in _OURS)
    said = {
        TOPIC: topic,
        PARTITION: str(key.partition),
        OFFSET: str(letter.offset),
        GROUP: key.group_id,
        DELIVERY_COUNT: str(letter.attempts),
        MESSAGE: _MESSAGES[letter.death],
        TOPIC_ID: str(key.topic_id),
    }
    if redrives:
        said[REDRIVES] = str(redrives)
    if generation > 1:
        said[GENERATION] = str(generation)
    headers = tuple((name, text.encode()) for name, text in said.items())
    if original is None or not is_copied:
        traced = tuple(each for each in kept if each[0] in TRACE_HEADERS)
        return Record(timestamp_ms=now_ms, headers=traced + headers)
    return replace(original, headers=kept + headers)


def redrives_of(headers: Headers) -> int:
    """How often a record has come back, as far as its headers say so."""
    return _number(headers, REDRIVES)


def generation_of(headers: Headers) -> int:
    """0 for a record that is not a dead letter; more than 1 for a letter of a letter."""
    is_letter = any(name == GROUP for name, _ in headers)
    return max(int(is_letter), _number(headers, GENERATION))


def _number(headers: Headers, wanted: str) -> int:
    for name, value in headers:
        if name == wanted and value is not None and value.isdigit() and len(value) < 6:
            return int(value)
    return 0
