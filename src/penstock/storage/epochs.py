"""Where a term ended (OffsetForLeaderEpoch, KIP-101)."""

from collections.abc import Sequence

from penstock.model.ids import Offset, Term

UNDEFINED = -1


def end_offset_for(
    epochs: Sequence[tuple[int, int]], term: int, log_end_offset: int
) -> tuple[Term, Offset]:
    """The largest known term up to `term`, and the offset at which it ends.

    `epochs` holds the log's terms in order, each with its first offset.
    """
    latest = epochs[-1][0] if epochs else UNDEFINED
    if term == UNDEFINED or term > latest:
        return Term(UNDEFINED), Offset(UNDEFINED)
    if term == latest:
        return Term(term), Offset(log_end_offset)
    floor = term
    for known, start in epochs:
        if known > term:
            return Term(floor), Offset(start)
        floor = known
    raise AssertionError("a term below the latest has a later one")
