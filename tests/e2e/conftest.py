"""Fixtures: a broker shared by the run, brokers of a test's own, topics with fresh names."""

import signal
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.e2e.processes import Broker

# Whoever is started in the background may ignore Ctrl-C and would hand that on to all commands.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

MakeTopic = Callable[..., str]
MakeBroker = Callable[..., Broker]


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker for all tests that do not harm it; they keep apart by topic and group names."""
    shared = Broker(tmp_path_factory.mktemp("shared") / "data").start()
    yield shared
    shared.close()


@pytest.fixture
def make_broker(tmp_path: Path) -> Iterator[MakeBroker]:
    """Brokers that a test may kill, damage and flood."""
    made: list[Broker] = []

    def make(*flags: str, data_dir: Path | None = None) -> Broker:
        made.append(Broker(data_dir or tmp_path / f"data-{len(made)}", *flags))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def make_topic(broker: Broker) -> MakeTopic:
    """Topics on the shared broker."""

    def make(partitions: int = 1, **configs: str) -> str:
        return create_topic(broker.bootstrap, partitions=partitions, **configs)

    return make


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


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
