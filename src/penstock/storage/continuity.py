"""Whether a batch follows on the one before it: offset and term lie outside the CRC."""

from penstock.records.batch import BatchHeader

# For those who don't know in which term the node is.
ANY_TERM = 2**31 - 1


def misfit(
    header: BatchHeader,
    expected: int,
    sparse_below: int,
    *,
    end: int | None = None,
    term_max: int = ANY_TERM,
) -> str:
    """What is wrong with the offsets of a batch where `expected` comes next; empty if nothing.

    Offsets may be missing only below `sparse_below`, where compaction or a repair has been.
    """
    is_gap = header.base_offset > expected and expected >= sparse_below
    if header.base_offset < expected or is_gap:
        return f"the batch has offset {header.base_offset} instead of {expected}"
    if end is not None and header.next_offset > end:
        return f"the batch reaches to offset {header.last_offset}, its segment ends before {end}"
    if header.leader_epoch > term_max:
        return f"the batch is from term {header.leader_epoch}, the node has only seen {term_max}"
    return ""
