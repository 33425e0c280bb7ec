"""Proves that the how-to page brings a cluster back: records, topics, groups and queues.

Its blocks run as they are written; only the two addresses change.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.client import Consumer, Producer
from penstock.client.admin import Admin
from penstock.client.queue import Queue
from penstock.model.ids import PartitionIndex, TopicName, TopicPartition
from tests.documents import ROOT, Document
from tests.e2e.conftest import MakeBroker
from tests.e2e.processes import clean_environment

PAGE = ROOT / "docs" / "how-to" / "back-up-and-restore.md"
NEW = "new.example:9092"
# A block starts Spark once or twice.
BLOCK_TIMEOUT_S = 400
TOPIC, PARTITIONS = "orders", 2
RECORDS, READ, ACKED = 60, 20, 5
PLACES = [
    TopicPartition(TopicName(TOPIC), PartitionIndex(partition)) for partition in range(PARTITIONS)
]

Record = tuple[int, int, bytes | None, bytes | None, int]


def records(bootstrap: str) -> list[Record]:
    with Admin(bootstrap) as admin:
        count = sum(admin.offsets.latest(PLACES).values())
    found = []
    with Consumer(TOPIC, bootstrap=bootstrap) as consumer:
        for record in consumer:
            place = (record.partition, record.offset)
            found.append((*place, record.key, record.value, record.timestamp_ms))
            if len(found) == count:
                return sorted(found)
    raise AssertionError("the topic ended early")


@pytest.mark.slow
@pytest.mark.timeout(3 * BLOCK_TIMEOUT_S)
def test_the_how_to_page_restores_a_cluster(
    java_home: Path, make_broker: MakeBroker, tmp_path: Path
) -> None:
    old, new = make_broker().start(), make_broker().start()
    with Admin(old.bootstrap) as admin:
        settings = {"retention.ms": "864000000"}
        admin.topics.create(TOPIC, partitions=PARTITIONS, settings=settings)
        with Producer(old.bootstrap) as producer:
            for number in range(RECORDS):
                producer.send(TOPIC, key=f"k{number % 7}".encode(), value=str(number).encode())
        ends = admin.offsets.latest(PLACES)
        middle = {at: min(end, READ) for at, end in ends.items()}
        admin.groups.set_offsets("billing", middle)
        with Queue(TOPIC, group="packing", bootstrap=old.bootstrap) as queue:
            for number, message in enumerate(queue, start=1):
                message.ack().result(60)
                if number == ACKED:
                    break
        starts = {(one.partition, one.start) for one in admin.queues.describe("packing").partitions}
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = clean_environment({"PATH": programs, "PENSTOCK_BOOTSTRAP": old.bootstrap})
    environment["JAVA_HOME"] = str(java_home)
    blocks = list(Document(PAGE).blocks("bash"))
    assert len(blocks) == 2
    for block in blocks:
        text = block.text.replace(NEW, new.bootstrap)
        outcome = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=BLOCK_TIMEOUT_S,
        )
        assert outcome.returncode == 0, f"{text}\n{outcome.stdout}\n{outcome.stderr}"
    assert records(new.bootstrap) == records(old.bootstrap)
    with Admin(new.bootstrap) as admin:
        committed = {at: offset for at, (offset, _) in admin.groups.committed("billing").items()}
        assert committed == middle
        described = admin.queues.describe("packing").partitions
        assert {(one.partition, one.start) for one in described} == starts
        own = [one for one in admin.topics.settings(TOPIC) if not one.is_default]
        assert {one.name: one.value for one in own} == settings
