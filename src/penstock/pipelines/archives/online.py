"""Compares an archive with its topic as it is now."""

from collections.abc import Iterator, Mapping

from penstock.pipelines.archives.ledger import Span
from penstock.pipelines.archives.topic_facts import TopicFacts
from penstock.pipelines.archives.verifying import Verdict


def compare_with_topic(
    verdict: Verdict, topic: TopicFacts, offsets: Mapping[int, tuple[int, int]]
) -> Iterator[str]:
    """`offsets` are the first that the topic holds, and the one behind the last, by partition."""
    description = verdict.description
    if topic.topic_id != description.topic_id:
        yield f"Topic {topic.name} was deleted and created again after the archive was started."
        return
    if topic.partitions != description.partitions:
        yield (
            f"Topic {topic.name} has {topic.partitions} partitions, the archive"
            f" {description.partitions}."
        )
    spans = {span.partition: span for span in verdict.spans}
    for partition, (first, end) in sorted(offsets.items()):
        nothing = Span(partition=partition, start=first, stop=first)
        yield from _compare(spans.get(partition, nothing), first, end)


def _compare(span: Span, first: int, end: int) -> Iterator[str]:
    where = f"Partition {span.partition}"
    if span.start > first:
        yield (
            f"{where}: the topic starts at offset {first}, but the archive only at offset"
            f" {span.start}."
        )
    if span.stop < end:
        yield (
            f"{where}: the topic goes up to offset {end - 1}, but the archive ends before offset"
            f" {span.stop}."
        )
    if span.stop > end:
        yield f"{where}: the archive goes up to offset {span.stop - 1}, but the topic does not."
