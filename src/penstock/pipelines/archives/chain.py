"""Whether the epochs of a ledger follow one another: each offset once, and none left out.

This file decides and does no I/O.
"""

from collections.abc import Iterable, Iterator, Sequence

from penstock.pipelines.archives.ledger import Entry, Span


def check_numbers(numbers: Sequence[int]) -> Iterator[str]:
    """Entries count from 0 on; `numbers` ascend."""
    expected = 0
    for number in numbers:
        if number > expected:
            yield f"{_epochs(expected, number - 1)} missing from the ledger."
        expected = number + 1


def _epochs(first: int, last: int) -> str:
    return f"Epoch {first} is" if first == last else f"Epochs {first} to {last} are"


def check_spans(entries: Iterable[Entry]) -> Iterator[str]:
    """In the ledger's order, each partition goes on where it ended before."""
    ends: dict[int, int] = {}
    for entry in entries:
        for span in entry.spans:
            end = ends.get(span.partition, span.start)
            where = f"Partition {span.partition}"
            if span.start > end:
                yield f"{where}: offsets {end} to {span.start - 1} are missing{_before(entry)}."
            elif span.start < end:
                yield f"{where}: offsets from {span.start} on are there twice{_before(entry)}."
            ends[span.partition] = max(end, span.stop)


def _before(entry: Entry) -> str:
    return f" before epoch {entry.number}"


def check_lost(entries: Iterable[Entry]) -> Iterator[str]:
    for entry in entries:
        for span in entry.lost:
            yield (
                f"Partition {span.partition}: offsets {span.start} to {span.stop - 1} were deleted"
                " from the topic before they could be archived."
            )


def covered(entries: Iterable[Entry]) -> tuple[Span, ...]:
    """By partition: from the first offset that was read to the last."""
    found: dict[int, Span] = {}
    for entry in entries:
        for span in entry.spans:
            before = found.get(span.partition, span)
            found[span.partition] = Span(
                partition=span.partition,
                start=min(before.start, span.start),
                stop=max(before.stop, span.stop),
            )
    return tuple(found[partition] for partition in sorted(found))
