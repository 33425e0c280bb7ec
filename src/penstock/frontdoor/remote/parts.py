"""What the doors of one process share, so that their requests share batches and reads."""

import asyncio
from dataclasses import dataclass

from penstock.frontdoor.remote.broker import Broker, Channel
from penstock.frontdoor.remote.door_counts import DoorCounts
from penstock.frontdoor.remote.locks import Locks
from penstock.frontdoor.remote.publishing import Publisher
from penstock.frontdoor.remote.queueing import Queueing
from penstock.frontdoor.remote.reading import Reader
from penstock.frontdoor.remote.topics import Topics
from penstock.frontdoor.remote.writing import Writer


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    broker: Broker
    topics: Topics
    writer: Writer
    reader: Reader
    queueing: Queueing
    locks: Locks
    counts: DoorCounts

    @classmethod
    def on(cls, channel: Channel) -> "Parts":
        broker = Broker(channel)
        now_s = asyncio.get_running_loop().time
        topics = Topics(broker, now_s)
        return cls(
            broker=broker,
            topics=topics,
            writer=Writer(topics, Publisher(broker)),
            reader=Reader(broker),
            queueing=Queueing(broker),
            locks=Locks(broker, now_s),
            counts=DoorCounts(),
        )
