"""Where a broker keeps what a test wrote, found by the id that Kafka's admin client tells."""

import base64
import uuid
from pathlib import Path

from tests.e2e.clients.java import Java
from tests.e2e.processes import Broker


def partition_folder(java: Java, broker: Broker, topic: str, partition: int) -> Path:
    """Other topics of a shared broker come, go and roll their segments at any time."""
    described = java.call("describe_topic", broker.bootstrap, topic=topic)
    topic_id = uuid.UUID(bytes=as_bytes(described["id"]))
    return broker.data_dir / "topics" / topic_id.hex / str(partition)


def as_bytes(kafka_id: str) -> bytes:
    return base64.urlsafe_b64decode(kafka_id + "==")
