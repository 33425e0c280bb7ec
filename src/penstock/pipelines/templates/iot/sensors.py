"""Sensors that send temperatures to the topic `readings`, each at its own level.

    python sensors.py --sensors 12 --rate 20

One reading in some hundred is wrong by many degrees: the pipeline should find it.
"""

import argparse
import contextlib
import json
import random
import time
from collections.abc import Iterator
from datetime import UTC, datetime

from penstock.client import Producer


def main() -> None:
    options = arguments()
    sent = 0
    started = time.monotonic()
    # A sensor's readings have its name as their key: they share a partition and keep their order.
    with Producer(options.brokers, compression="lz4") as producer:
        for reading in readings(options.sensors, options.wrong):
            if sent == options.count:
                break
            time.sleep(max(0.0, started + sent / options.rate - time.monotonic()))
            reading["at"] = datetime.now(UTC).isoformat(timespec="milliseconds")
            value = json.dumps(reading).encode()
            producer.send(options.topic, value, key=str(reading["sensor"]).encode())
            sent += 1
    print(f"{sent} readings sent.")


def readings(sensors: int, wrong: float) -> Iterator[dict[str, object]]:
    """All sensors in turn, forever; `number` counts the readings of one sensor."""
    levels = {f"sensor-{place:02}": random.uniform(5, 25) for place in range(1, sensors + 1)}
    number = 0
    while True:
        for sensor, level in levels.items():
            temperature = level + random.gauss(0, 0.3)
            if random.random() < wrong:
                temperature += random.choice([-1, 1]) * random.uniform(8, 30)
            yield {"sensor": sensor, "number": number, "temperature": round(temperature, 2)}
        number += 1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--brokers", default="127.0.0.1:9092", help="where the topic is")
    parser.add_argument("--topic", default="readings")
    parser.add_argument("--sensors", type=int, default=12, help="how many there are")
    parser.add_argument("--rate", type=float, default=20, help="readings a second, of all sensors")
    parser.add_argument("--wrong", type=float, default=0.005, help="share of wrong readings")
    parser.add_argument("--count", type=int, help="stop after N readings")
    return parser.parse_args()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
