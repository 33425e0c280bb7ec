"""Fixtures: a broker shared by the run, brokers of a test's own, topics with fresh names."""

import signal
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.apache_kafka import apache_kafka
from tests.e2e.beside_kafka import Brokers
from tests.e2e.clients.java import missing
from tests.e2e.processes import Broker
from tests.e2e.topics import create_topic as create_topic

# Anyone who is started in the background may ignore Ctrl-C and would hand that on to all commands.
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


@pytest.fixture(scope="session")
def brokers(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    """The shared broker, and one of Apache Kafka with the same settings. Tests that use it are
    marked `xdist_group("apache-kafka")`, or each process would start a Kafka of its own."""
    if missing():
        pytest.skip(f"not installed: {', '.join(missing())}")
    folder = tmp_path_factory.mktemp("kafka")
    with apache_kafka(folder, metric_reporters="MetricsReceiver") as bootstrap:
        yield Brokers(broker.bootstrap, bootstrap)


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
