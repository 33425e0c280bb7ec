"""Proves that what README and the how-to page tell Spark users to type works as written.

The session of the tests is what `session()` finds active, so the pages run in seconds.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.client import Producer
from penstock.spark.sessions import RECOMMENDED
from tests.documents import ROOT, Document
from tests.e2e.conftest import MakeBroker, create_topic
from tests.e2e.processes import Broker, clean_environment
from tests.e2e.test_documents import SPARK

ADDRESS = "127.0.0.1:9092"
CHECKPOINTS = "checkpoints/"
# A block may start Spark twice.
BLOCK_TIMEOUT_S = 400


class Reader:
    """Somebody who types a page's blocks into one Python prompt and one shell."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        self.broker = broker
        self._folder = folder
        self._names: dict[str, object] = {}
        self.shown = ""

    def type(self, language: str, text: str) -> None:
        # Spark's JVM stays in the folder in which it was started.
        text = text.replace(CHECKPOINTS, f"{self._folder}/{CHECKPOINTS}")
        text = text.replace(ADDRESS, self.broker.bootstrap)
        if language == "python":
            exec(compile(text, "page", "exec"), self._names)
            return
        programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = clean_environment(
            {"PATH": programs, "PENSTOCK_BOOTSTRAP": self.broker.bootstrap}
        )
        command = ["bash", "-euo", "pipefail", "-c", text]
        outcome = subprocess.run(
            command, env=environment, capture_output=True, timeout=BLOCK_TIMEOUT_S
        )
        assert outcome.returncode == 0, f"{text}\n{outcome.stdout!r}\n{outcome.stderr!r}"
        self.shown += outcome.stdout.decode()


@pytest.fixture
def reader(
    spark: SparkSession, make_broker: MakeBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Reader]:
    """In an empty folder, with a broker whose topics are the page's."""
    monkeypatch.chdir(tmp_path)
    # What the pages set would stay with the session, which other tests take for a plain one.
    before = {name: spark.conf.get(name, None) for name in RECOMMENDED}
    yield Reader(make_broker().start(), tmp_path)
    spark.catalog.dropTempView("readings")
    for name, value in before.items():
        spark.conf.unset(name) if value is None else spark.conf.set(name, value)


@pytest.mark.slow
def test_the_how_to_page(reader: Reader, capsys: pytest.CaptureFixture[str]) -> None:
    for block in Document(ROOT / "docs" / "how-to" / "use-spark.md").blocks("bash", "python"):
        reader.type(block.language, block.text)
    shown = capsys.readouterr().out
    assert "kitchen" in shown
    assert "averages-job" in reader.shown


def test_readme(reader: Reader, capsys: pytest.CaptureFixture[str]) -> None:
    topic = create_topic(reader.broker.bootstrap, "readings", partitions=3)
    with Producer(reader.broker.bootstrap) as producer:
        for key in ("kitchen", "cellar", "kitchen"):
            producer.send(topic, value=b"20.5", key=key.encode())
    for block in Document(ROOT / "README.md").blocks("bash", "python"):
        if SPARK.search(block.text):
            reader.type(block.language, block.text)
    assert "|" in capsys.readouterr().out
    assert "3 records" in reader.shown
    assert "turnover" in reader.shown
