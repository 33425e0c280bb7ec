"""Whether a batch follows on the one before it: offset and term lie outside the CRC."""

from penstock.records.batch import BatchHeader


def misfit(
    header: BatchHeader,
    expected: int,
    sparse_below: int,
    *,
    end: int | None = None,
    term: int | None = None,
) -> str:
    """What is wrong with a batch where offset `expected` comes next; empty if nothing.

    Offsets may be missing only below `sparse_below`, where compaction or a repair has been. The
    term is that which the last own entry of Raft began, or None if nobody knows it.
    """
    is_gap = header.base_offset > expected and expected >= sparse_below
    if header.base_offset < expected or is_gap:
        return f"the batch has offset {header.base_offset} instead of {expected}"
    if end is not None and header.next_offset > end:
        return f"the batch reaches offset {header.last_offset}, but its segment ends before {end}"
    if term is not None and header.leader_epoch != term and not header.is_own:
        return f"the batch is from term {header.leader_epoch}, but the log is in {term}"
    return ""
