"""Publish, subscribe and ack over Kafka's binary protocol, through a restart of the broker.

Every subscriber gets every message, and acks each. The publisher may have a hundred messages under
way: then `send` waits, which holds it back instead of filling memory. In the middle the broker is
killed and started again. The publisher waits, the subscribers wait, and nothing is lost, because a
message was on disk before it was acknowledged.

    python examples/publish_subscribe.py --messages 2000
"""

import argparse
import tempfile
import threading
import time
from pathlib import Path

from penstock import Producer, Queue
from penstock.testing import ProcessBroker

TOPIC = "news"
IN_FLIGHT_MAX = 100


def publish(bootstrap: str, count: int) -> None:
    held_back_s = 0.0
    options = {"queue.buffering.max.messages": IN_FLIGHT_MAX}
    with Producer(bootstrap, options=options) as producer:
        for number in range(count):
            began = time.monotonic()
            producer.send(TOPIC, {"number": number})
            held_back_s += time.monotonic() - began
    print(f"published {producer.delivered}; send waited {held_back_s:.1f} s in all")


def subscribe(name: str, bootstrap: str, count: int, seen: set[int]) -> None:
    with Queue(TOPIC, group=name, bootstrap=bootstrap) as queue:
        while len(seen) < count:
            for message in queue.take(100, timeout_s=1):
                seen.add(message.json()["number"])
                # Until now the message is this subscriber's alone; without it, it comes again.
                message.ack()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--messages", type=int, default=5_000)
    count = parser.parse_args().messages
    with tempfile.TemporaryDirectory() as folder, ProcessBroker(Path(folder)) as broker:
        broker.create_topic(TOPIC, partitions=2)
        run(broker, count)


def run(broker: ProcessBroker, count: int) -> None:
    heard: dict[str, set[int]] = {"press": set(), "archive": set()}
    threads = [threading.Thread(target=publish, args=(broker.bootstrap, count))] + [
        threading.Thread(target=subscribe, args=(name, broker.bootstrap, count, seen))
        for name, seen in heard.items()
    ]
    for thread in threads:
        thread.start()
    while not heard["press"]:
        time.sleep(0.05)
    print(f"the broker is killed after {len(heard['press'])} messages")
    broker.kill()
    time.sleep(1)
    broker.start()
    for thread in threads:
        thread.join()
    assert heard == {name: set(range(count)) for name in heard}
    print(f"both subscribers acked all {count} messages")


if __name__ == "__main__":
    main()
