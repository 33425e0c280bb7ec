"""Which segments a log's settings let go, by age and by size."""

from itertools import takewhile

from penstock.model.topic_config import FOREVER, TopicConfig
from penstock.storage.segment import Segment


def expired(
    segments: list[Segment], config: TopicConfig, *, now_ms: int, end_offset: int
) -> list[Segment]:
    """The segments that may go, from the front; none that reaches past `end_offset`."""
    if not config.cleanup_delete:
        return []
    safe = list(takewhile(lambda segment: segment.next_offset <= end_offset, segments))
    by_age = _too_old(safe, config.retention_ms, now_ms)
    excess = sum(segment.size for segment in segments) - config.retention_bytes
    by_size = _too_much(safe, excess) if config.retention_bytes != FOREVER else []
    return max(by_age, by_size, key=len)


def _too_old(segments: list[Segment], retention_ms: int, now_ms: int) -> list[Segment]:
    """A record from the future keeps its segment, and those behind it, until its time is past."""
    if retention_ms == FOREVER:
        return []
    return list(
        takewhile(
            lambda segment: segment.size > 0 and now_ms - _last_change_ms(segment) > retention_ms,
            segments,
        )
    )


def _last_change_ms(segment: Segment) -> int:
    # Records without timestamps age from when their segment was begun.
    return segment.max_timestamp if segment.max_timestamp >= 0 else segment.created_ms


def _too_much(segments: list[Segment], excess: int) -> list[Segment]:
    """As many segments as leave at least the retained size behind."""
    gone = []
    for segment in segments:
        if segment.size == 0 or segment.size > excess:
            break
        excess -= segment.size
        gone.append(segment)
    return gone
