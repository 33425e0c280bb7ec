"""A run that waits for brokers says so: once when they go away, once when they are back."""

from pathlib import Path

from penstock.client.errors import no_answer
from penstock.pipelines.running.broker_watch import BrokerWatch, changes
from penstock.pipelines.running.flow_brokers import brokers_by_flow
from penstock.pipelines.specification.model import TopicSink, TopicSource
from tests.unit.pipelines.running.rig import PLACE, flow, pipeline, to_console


class Brokers:
    """Addresses at which nobody answers."""

    def __init__(self) -> None:
        self.away: set[str] = set()

    def look(self, address: str, timeout_s: float) -> None:
        if address in self.away:
            raise no_answer(address, "connection refused")


def test_brokers_that_go_away_and_come_back_are_reported_once() -> None:
    brokers = Brokers()
    watch = BrokerWatch(["a:1", "b:2", "a:1"], look=brokers.look)
    said: list[str] = []

    def look() -> None:
        before = watch.silent
        watch.look_once()
        said.extend(changes(before, watch.silent))

    look()
    brokers.away = {"a:1"}
    look()
    assert said == [], "one look may hit the moment of a restart"
    for _ in range(5):
        look()
    brokers.away = set()
    for _ in range(5):
        look()
    assert said == [
        "No broker answers at a:1: connection refused. Waiting for it.",
        "A broker answers at a:1 again.",
    ]


def test_the_brokers_of_a_flow_are_those_of_its_topics(tmp_path: Path) -> None:
    option = "Kafka.Bootstrap.Servers"
    source = TopicSource(name="a", options={"subscribe": "a", option: "a:1"}, place=PLACE)
    sink = TopicSink(options={"topic": "b", option: "b:2"}, place=PLACE)
    flows = [flow("one", "a", sink), flow("two", "a", to_console())]
    assert brokers_by_flow(pipeline(tmp_path, [source], flows)) == {
        "one": ["a:1", "b:2"],
        "two": ["a:1"],
    }
