"""What a queue remembers of its dead letters: which producer it is, what it is about to send, and
how far letters were brought back.

A batch of letters is planned before it is sent, and the plan is stored first. So after a crash the
next leader sends exactly the same batch again, under the same producer and sequence, and the
dead-letter topic recognises it if it has it already. The queue owns the producer. There is never
more than one plan of a kind.
"""

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple

from penstock.model.ids import TopicId

_SEQUENCE_MODULUS = 2**31
_EPOCH_MAX = 2**15 - 1
# Dead-letter partitions and producers that a queue remembers: those that it used last.
REMEMBERED_MAX = 100


class Death(IntEnum):
    """Why a record was given up. The numbers are stored."""

    NONE = 0
    REJECTED = 1
    TRIED_TOO_OFTEN = 2
    EXPIRED = 3


class Letter(NamedTuple):
    """A record on its way to the dead-letter topic, and what its headers say of it."""

    offset: int
    attempts: int
    death: Death
    redrives: int


class Sender(NamedTuple):
    """An idempotent producer that a queue owns, for one partition of one topic."""

    topic_id: TopicId
    partition: int
    producer_id: int
    epoch: int = 0
    # Of the next record.
    sequence: int = 0

    def after(self, count: int) -> "Sender":
        return self._replace(sequence=(self.sequence + count) % _SEQUENCE_MODULUS)

    def renewed(self) -> "Sender | None":
        """For other records in place of those that were planned: what may still be on its way
        is refused once one of these has arrived. None if there is no later epoch."""
        if self.epoch >= _EPOCH_MAX:
            return None
        return self._replace(epoch=self.epoch + 1, sequence=0)


@dataclass(frozen=True, slots=True)
class Plan:
    """A batch that may have been sent. Only the first `count` letters are in it: it gets shorter
    when it turns out to be too large, and the others stay to say what it was before."""

    letters: tuple[Letter, ...]
    count: int

    @property
    def in_batch(self) -> tuple[Letter, ...]:
        return self.letters[: self.count]


class Copies(NamedTuple):
    """Letters whose records are gone from the log, to be appended to it again."""

    # Where the letters lie.
    topic_id: TopicId
    partition: int
    offsets: tuple[int, ...]


class Redriven(NamedTuple):
    """Up to where the letters of this queue in one dead-letter partition were brought back."""

    topic_id: TopicId
    partition: int
    next_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterState:
    sender: Sender | None = None
    plan: Plan | None = None
    # How many letters have reached a dead-letter topic, and how many records came back.
    sent_count: int = 0
    redriven_count: int = 0
    redriven: tuple[Redriven, ...] = ()
    copier: Sender | None = None
    copies: Copies | None = None
    # All producers of copies for this queue: other groups skip those.
    copiers: tuple[int, ...] = ()

    @property
    def is_busy(self) -> bool:
        """Whether something may be on its way."""
        return self.plan is not None or self.copies is not None

    def redriven_up_to(self, topic_id: TopicId, partition: int) -> int:
        found = (each.next_offset for each in self.redriven if each[:2] == (topic_id, partition))
        return next(found, 0)

    def returned_up_to(self, topic_id: TopicId, partition: int) -> int:
        """As `redriven_up_to`, but before copies that may be on their way, or never arrive."""
        copies, end = self.copies, self.redriven_up_to(topic_id, partition)
        if copies is None or (copies.topic_id, copies.partition) != (topic_id, partition):
            return end
        return min(end, copies.offsets[0])

    # Bringing back

    def redriven_to(self, place: Redriven, count: int) -> "LetterState":
        """From there on letters of this partition are still to be brought back."""
        others = [each for each in self.redriven if each[:2] != place[:2]]
        kept = (*others, place)[-REMEMBERED_MAX:]
        return replace(self, redriven=kept, redriven_count=self.redriven_count + count)

    def copying(self, copies: Copies, copier: Sender, next_offset: int) -> "LetterState":
        """These are appended next; they count as brought back from now on."""
        assert copies.offsets
        assert self.copies is None
        place = Redriven(copies.topic_id, copies.partition, next_offset)
        copiers = self.copiers
        if copier.producer_id not in copiers:
            copiers = (*copiers, copier.producer_id)[-REMEMBERED_MAX:]
        state = self.redriven_to(place, len(copies.offsets))
        return replace(state, copies=copies, copier=copier, copiers=copiers)

    def copied(self) -> "LetterState":
        """The log has them again."""
        assert self.copies is not None
        assert self.copier is not None
        return replace(self, copies=None, copier=self.copier.after(len(self.copies.offsets)))

    def uncopied(self, *, is_passed: bool) -> "LetterState":
        """They were not appended, and are to be brought back another time, unless they are passed
        over."""
        assert self.copies is not None
        topic_id, partition, offsets = self.copies
        state = replace(self, copies=None, copier=None)
        if is_passed:
            return replace(state, redriven_count=self.redriven_count - len(offsets))
        return state.redriven_to(Redriven(topic_id, partition, offsets[0]), -len(offsets))

    # Dead letters

    def planned(self, letters: tuple[Letter, ...], sender: Sender) -> "LetterState":
        assert letters
        assert self.plan is None
        return replace(self, sender=sender, plan=Plan(letters, len(letters)))

    def shortened(self) -> "LetterState":
        """Half as many letters in the batch. Nothing was appended, so the sequence is the same."""
        assert self.plan is not None
        assert self.plan.count > 1
        return replace(self, plan=replace(self.plan, count=self.plan.count // 2))

    def arrived(self, count: int) -> "LetterState":
        """The dead-letter topic has the first `count` letters of the plan."""
        assert self.plan is not None
        assert self.sender is not None
        sender = self.sender.after(count)
        return replace(self, sender=sender, plan=None, sent_count=self.sent_count + count)

    def dropped(self, *, keeps_sender: bool) -> "LetterState":
        """The plan will never be carried out."""
        sender = self.sender.renewed() if keeps_sender and self.sender is not None else None
        return replace(self, sender=sender, plan=None)
