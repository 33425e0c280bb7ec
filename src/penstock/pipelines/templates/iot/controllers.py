"""A controller: reads alerts and would now look at the sensor.

    python controllers.py

Start several: they are one group, so each alert reaches one of them.
"""

import argparse
import contextlib
import json
import time

from penstock.client import Consumer


def main() -> None:
    options = arguments()
    ends = time.monotonic() + options.seconds if options.seconds else float("inf")
    with Consumer(options.topic, group=options.group, bootstrap=options.brokers) as consumer:
        while time.monotonic() < ends:
            alerts = consumer.poll(0.5)
            for alert in alerts:
                act(json.loads(alert.value or b"{}"))
            # Only now: an alert that was not acted on comes again, to this controller or another.
            consumer.done(alerts)


def act(alert: dict[str, object]) -> None:
    print(
        f"{alert['sensor']}: {alert['temperature']} degrees, usually {alert['usual']:.1f} "
        f"(reading {alert['number']} at {alert['at']})",
        flush=True,
    )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--brokers", default="127.0.0.1:9092", help="where the topic is")
    parser.add_argument("--topic", default="alerts")
    parser.add_argument("--group", default="controllers")
    parser.add_argument("--seconds", type=float, help="stop after this time")
    return parser.parse_args()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
