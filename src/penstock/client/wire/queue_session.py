"""A share session with one broker, as values: what to send, and where its epoch is (KIP-932)."""

from collections.abc import Collection, Iterable, Mapping
from itertools import groupby
from uuid import UUID

from penstock.client.wire.queue_leases import Ack, AckGroup, AckType, SharePlace
from penstock.protocol.kafka.messages.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from penstock.protocol.kafka.messages.share_fetch import (
    RECORD_LIMIT,
    AcknowledgementBatch,
    ShareFetchPartition,
    ShareFetchRequest,
    ShareFetchTopic,
    ShareForgottenTopic,
)

FIRST_EPOCH = 0
FINAL_EPOCH = -1
EPOCH_MAX = 2**31 - 1


class ShareSession:
    """Every request of a session but the last one takes its next epoch."""

    def __init__(self, group: str, member_id: str) -> None:
        self._group = group
        self._member_id = member_id
        self.epoch = FIRST_EPOCH
        # What the broker knows to be wanted.
        self.places: frozenset[SharePlace] = frozenset()

    @property
    def is_open(self) -> bool:
        return self.epoch != FIRST_EPOCH

    def fetch(
        self, places: Collection[SharePlace], *, records_max: int, bytes_max: int, wait_ms: int
    ) -> ShareFetchRequest:
        """Leases at most that many records; the broker hears of partitions that are new to it."""
        wanted = frozenset(places)
        return ShareFetchRequest(
            group_id=self._group,
            member_id=self._member_id,
            share_session_epoch=self.epoch,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=bytes_max,
            max_records=records_max,
            batch_size=max(records_max, 1),
            share_acquire_mode=RECORD_LIMIT,
            topics=[
                ShareFetchTopic(
                    topic_id=topic_id,
                    partitions=[ShareFetchPartition(partition_index=one) for one in partitions],
                )
                for topic_id, partitions in _by_topic(wanted - self.places)
            ],
            forgotten_topics_data=[
                ShareForgottenTopic(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in _by_topic(self.places - wanted)
            ],
        )

    def acknowledge(self, groups: Mapping[SharePlace, AckGroup]) -> ShareAcknowledgeRequest:
        acks = (ack for group in groups.values() for ack in group)
        return ShareAcknowledgeRequest(
            group_id=self._group,
            member_id=self._member_id,
            share_session_epoch=self.epoch,
            is_renew_ack=any(ack.type is AckType.RENEW for ack in acks),
            topics=[
                AcknowledgeTopic(
                    topic_id=topic_id,
                    partitions=[
                        AcknowledgePartition(
                            partition_index=one,
                            acknowledgement_batches=_batches(groups[SharePlace(topic_id, one)]),
                        )
                        for one in partitions
                    ],
                )
                for topic_id, partitions in _by_topic(groups)
            ],
        )

    def close(self) -> ShareAcknowledgeRequest:
        """The broker gives back what is still leased."""
        return ShareAcknowledgeRequest(
            group_id=self._group, member_id=self._member_id, share_session_epoch=FINAL_EPOCH
        )

    def fetched(self, places: Collection[SharePlace]) -> None:
        """The broker has taken the fetch that named these."""
        self.places = frozenset(places)
        self.acknowledged()

    def acknowledged(self) -> None:
        self.epoch = 1 if self.epoch == EPOCH_MAX else self.epoch + 1

    def reset(self) -> None:
        """It is over; the next fetch begins another one."""
        self.epoch = FIRST_EPOCH
        self.places = frozenset()


def _by_topic(places: Iterable[SharePlace]) -> list[tuple[UUID, list[int]]]:
    return [
        (topic_id, [one.partition for one in ones])
        for topic_id, ones in groupby(sorted(places), key=lambda one: one.topic_id)
    ]


def _batches(acks: Iterable[Ack]) -> list[AcknowledgementBatch]:
    """As few as possible; the acks are in the order of their offsets."""
    batches: list[AcknowledgementBatch] = []
    for ack in acks:
        last = batches[-1] if batches else None
        if last and last.last_offset + 1 == ack.first and last.acknowledge_types == [ack.type]:
            last.last_offset = ack.last
        else:
            batches.append(
                AcknowledgementBatch(
                    first_offset=ack.first, last_offset=ack.last, acknowledge_types=[int(ack.type)]
                )
            )
    return batches
