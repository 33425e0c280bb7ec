"""Proves what is said about topics that brokers do not have, or brokers that do not answer."""

import socket
from pathlib import Path

from penstock.client.errors import ClientError
from penstock.pipelines.checking.topics import asked, check_topics
from penstock.pipelines.specification.reading import read_pipeline

SPECIFICATION = """\
pipeline: iot
sources:
  readings: {topic: readings, brokers: "here:1"}
  several: {topics: [readings, reedings], brokers: "here:1"}
  matching: {pattern: "temp_.*", brokers: "here:1"}
  away: {topic: readings, brokers: "away:1"}
flows:
  copy: {from: readings, to: {topic: coppies, brokers: "here:1"}}
  fine: {from: readings, to: {topic: copies, brokers: "here:1"}}
  lost: {from: readings, to: {topic: copies, brokers: "away:1"}}
"""
ANSWERS: dict[str, dict[str, int] | ClientError] = {
    "here:1": {"readings": 2, "copies": 1},
    "away:1": ClientError("There is no broker at away:1."),
}


def test_each_topic_is_looked_for_at_its_brokers(tmp_path: Path) -> None:
    path = tmp_path / "iot.yaml"
    path.write_text(SPECIFICATION)
    problems = check_topics(read_pipeline(path), ANSWERS.__getitem__)
    found = [str(problem).removeprefix(f"{path}:") for problem in problems]
    assert found == [
        "4:32: There is no topic reedings at here:1; the nearest is readings.",
        "5:24: No topic at here:1 matches the pattern temp_.*.",
        "6:37: There is no broker at away:1.",
        "8:38: There is no topic coppies at here:1; the nearest is copies.",
        "10:56: There is no broker at away:1.",
    ]


def test_a_broker_that_is_not_there_is_named() -> None:
    with socket.socket() as silent:
        # Bound without listening: nobody else can take the port meanwhile.
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        answer = asked(f"127.0.0.1:{port}")
    assert isinstance(answer, ClientError)
    assert str(port) in str(answer)
