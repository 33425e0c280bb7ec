"""How long a producer waits for its acknowledgements at an even rate, with a consumer beside it."""

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import NamedTuple

CLIENT_TIMEOUT_S = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Messages a second in total, over all clients and partitions."""

    partitions: int
    rate: int
    seconds: float
    size: int
    clients: int = 1


class Latency(NamedTuple):
    p50_ms: float
    p99_ms: float


def measure_latency(bootstrap: str, topic: str, load: Load) -> Latency:
    """One run of the producers, with one consumer on all partitions that sees every message."""
    command = [sys.executable, "-m", "benchmarks.latency_process"]
    place = [bootstrap, topic, str(load.partitions)]
    consumer = subprocess.Popen(
        [*command, "consume", *place], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert consumer.stdout is not None
        if consumer.stdout.readline() != "ready\n":
            raise RuntimeError("the consumer did not start")
        outcome = subprocess.run(
            [*command, "produce", *place]
            + [str(each) for each in (load.clients, load.rate, load.seconds, load.size)],
            capture_output=True,
            text=True,
            timeout=CLIENT_TIMEOUT_S,
        )
        if outcome.returncode != 0:
            raise RuntimeError(f"the producer failed: {outcome.stderr[-2000:]}")
        found = json.loads(outcome.stdout)
        seen, _ = consumer.communicate(str(found["sent"]) + "\n", timeout=CLIENT_TIMEOUT_S)
    finally:
        consumer.kill()
        consumer.wait()
    if int(seen) < found["sent"]:
        raise RuntimeError(f"{found['sent']} messages were acknowledged, {seen.strip()} consumed")
    return Latency(found["p50_ms"], found["p99_ms"])


def percentile(values: list[float], share: float) -> float:
    """The smallest value that this share of all is not above, from 0 to 1."""
    assert 0 <= share <= 1, f"{share} is not a share"
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
