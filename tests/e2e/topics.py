"""Topics with fresh names, on any broker."""

import uuid

from confluent_kafka.admin import AdminClient, NewTopic


def create_topic(
    bootstrap: str, name: str | None = None, *, partitions: int = 1, **configs: str
) -> str:
    """Create a topic; settings are given with `_` for `.`."""
    name = name or f"topic-{uuid.uuid4().hex[:8]}"
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=settings)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([topic], operation_timeout=30)[name].result(timeout=60)
    return name
