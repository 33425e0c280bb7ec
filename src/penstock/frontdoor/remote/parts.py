"""What the doors of one process share, so that their requests share batches and reads."""

import asyncio
from dataclasses import dataclass

from penstock.frontdoor.remote.broker import Broker, Channel
from penstock.frontdoor.remote.publishing import Publisher
from penstock.frontdoor.remote.reading import Reader
from penstock.frontdoor.remote.topics import Topics
from penstock.frontdoor.remote.writing import Writer


@dataclass(frozen=True, slots=True)
class Parts:
    broker: Broker
    topics: Topics
    writer: Writer
    reader: Reader

    @classmethod
    def on(cls, channel: Channel) -> "Parts":
        broker = Broker(channel)
        topics = Topics(broker, asyncio.get_running_loop().time)
        return cls(broker, topics, Writer(topics, Publisher(broker)), Reader(broker))
