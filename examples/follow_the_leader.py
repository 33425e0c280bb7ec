"""Sensors and controllers over HTTP, while the leader of their topic is killed under them.

Three nodes start. Sensors write readings and try each again until it is acknowledged. Controllers
sleep until a reading arrives. The leader dies by `kill -9`, and all of them go on with the new one
by themselves: they only know three addresses, and ask the next one when one does not answer.

    python examples/follow_the_leader.py --readings 60
"""

import argparse
import json
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

from penstock.testing import ProcessCluster

TOPIC = "temperatures"
# Longer than a node needs to answer, shorter than anybody wants to wait for a dead one.
ANSWER_S = 5.0
SLEEP_MS = 2_000


class Api:
    """Asks one node after the other until one answers."""

    def __init__(self, addresses: list[str]) -> None:
        self.addresses = addresses

    def ask(self, path: str, body: object = None, headers: dict[str, str] | None = None) -> dict:
        while True:
            url = f"http://{self.addresses[0]}{path}"
            data = None if body is None else json.dumps(body).encode()
            kind = {"Content-Type": "application/json"}
            request = urllib.request.Request(url, data, kind | (headers or {}))
            try:
                with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                if error.code < 500:
                    raise SystemExit(f"{error.code}: {error.read().decode()}") from None
            except OSError as error:
                print(f"{self.addresses[0]} does not answer: {error}")
            self.addresses = [*self.addresses[1:], self.addresses[0]]
            time.sleep(0.1)


def sensor(name: str, api: Api, count: int, pauses: list[float]) -> None:
    for number in range(count):
        began = time.monotonic()
        # The key makes trying again safe: a reading that was stored already is not stored twice.
        api.ask(
            f"/v1/topics/{TOPIC}/records",
            {"records": [{"key": name, "value": {"sensor": name, "number": number}}]},
            {"Idempotency-Key": f"{name}-{number}"},
        )
        pauses.append(time.monotonic() - began)
        time.sleep(0.05)


def controller(api: Api, partition: int, expected: int, seen: list[dict]) -> None:
    offset = 0
    while len(seen) < expected:
        # Nothing there yet: this call sleeps at the broker, and wakes when a reading arrives.
        query = f"partition={partition}&offset={offset}&wait_ms={SLEEP_MS}"
        answer = api.ask(f"/v1/topics/{TOPIC}/records?{query}")
        seen += [record["value"] for record in answer["records"]]
        # Only now: a controller that dies before this line reads the same readings again.
        offset = answer["next_offset"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--readings", type=int, default=100, help="of each sensor")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ProcessCluster(Path(folder)) as cluster:
        cluster.create_topic(TOPIC)
        run(cluster, options.readings)


def run(cluster: ProcessCluster, count: int) -> None:
    addresses = [node.http for node in cluster.nodes.values()]
    names, pauses, seen = ["kitchen", "cellar"], [], [[], []]
    threads = [
        threading.Thread(target=sensor, args=(name, Api(addresses), count, pauses))
        for name in names
    ] + [
        threading.Thread(target=controller, args=(Api(addresses), 0, count * len(names), heard))
        for heard in seen
    ]
    for thread in threads:
        thread.start()
    while len(seen[0]) < count // 2:
        time.sleep(0.05)
    leader = cluster.leader(TOPIC)
    print(f"node {leader.number} leads; it is killed after {len(seen[0])} readings")
    leader.kill()
    for thread in threads:
        thread.join()
    print(f"node {cluster.leader(TOPIC).number} leads now")
    print(f"{len(pauses)} readings were written; the longest took {max(pauses):.1f} s")
    for heard in seen:
        for name in names:
            numbers = [reading["number"] for reading in heard if reading["sensor"] == name]
            assert numbers == list(range(count)), f"{name}: {numbers}"
    print(f"both controllers saw all {count * len(names)} readings once and in order")


if __name__ == "__main__":
    main()
