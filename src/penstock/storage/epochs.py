"""In which term each part of the log was written (OffsetForLeaderEpoch, KIP-101)."""

from collections.abc import Iterable

from penstock.model.ids import Offset, Term

UNDEFINED = -1


class EpochHistory:
    """Terms in order, each with the first offset that was written in it.

    The entries are replaced, never changed, so that any thread may read them.
    """

    __slots__ = ("entries",)

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self.entries: tuple[tuple[int, int], ...] = tuple(entries)

    @property
    def latest(self) -> int:
        return self.entries[-1][0] if self.entries else UNDEFINED

    def note(self, term: int, offset: int) -> None:
        """A batch of this term lies at this offset."""
        if term > self.latest:
            self.entries = (*self.entries, (term, offset))

    def truncate_to(self, end_offset: int) -> None:
        self.entries = tuple(entry for entry in self.entries if entry[1] < end_offset)

    def delete_before(self, start_offset: int) -> None:
        """Forgets terms that end before the log begins; the one it begins in moves up."""
        gone = [entry for entry in self.entries if entry[1] <= start_offset]
        if gone:
            kept = self.entries[len(gone) :]
            self.entries = ((gone[-1][0], start_offset), *kept)

    def end_offset_for(self, term: int, log_end_offset: int) -> tuple[Term, Offset]:
        """The largest known term up to `term`, and the offset at which it ends."""
        if term == UNDEFINED or term > self.latest:
            return Term(UNDEFINED), Offset(UNDEFINED)
        if term == self.latest:
            return Term(term), Offset(log_end_offset)
        floor = term
        for known, start in self.entries:
            if known > term:
                return Term(floor), Offset(start)
            floor = known
        raise AssertionError("a term below the latest has a later one")
