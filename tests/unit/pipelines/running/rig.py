"""Sinks, pipelines and checkpoints for tests that need no Spark."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.pipelines.sinks.sink import Epoch, Written
from penstock.pipelines.specification.model import (
    ConsoleSink,
    Flow,
    LakeFormat,
    LakeSink,
    Pipeline,
    Sink,
    Source,
    TopicSink,
    TopicSource,
)
from penstock.pipelines.specification.problems import Place

PLACE = Place("iot.yaml", 1, 1)
QUERY = "11111111-2222-3333-4444-555555555555"


class ListSink:
    """Keeps epochs in memory; `held` are those that it has from before."""

    def __init__(self, held: Mapping[str, int] | None = None) -> None:
        self.last = dict(held or {})
        self.written: list[Epoch] = []
        self.failure: Exception | None = None

    def prepare(self, schema: Any) -> None: ...

    def write(self, frame: Any, epoch: Epoch) -> Written:
        if self.failure is not None:
            raise self.failure
        if self.last.get(epoch.query, -1) >= epoch.batch:
            return Written(rows=0, was_there=True)
        self.last[epoch.query] = epoch.batch
        self.written.append(epoch)
        return Written(rows=1)

    def queries_before(self, pipeline: str, flow: str) -> frozenset[str]:
        return frozenset(self.last)

    def clear(self) -> None:
        self.last.clear()


def make_checkpoint(
    folder: Path, *, query: str = QUERY, planned: int | None = None, committed: int | None = None
) -> None:
    """A checkpoint as Spark leaves it, as far as it is looked at."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metadata").write_text(json.dumps({"id": query}))
    for name, last in (("offsets", planned), ("commits", committed)):
        (folder / name).mkdir(exist_ok=True)
        for batch in range(-1 if last is None else last, -1 if last is None else last + 1):
            (folder / name / str(batch)).write_text("v1\n{}")
            (folder / name / f".{batch}.crc").write_text("")


def topic_source(name: str, topic: str) -> TopicSource:
    return TopicSource(name=name, options={"subscribe": topic}, place=PLACE)


def flow(name: str, source: str, sink: Sink) -> Flow:
    return Flow(name=name, input=source, sink=sink, place=PLACE)


def to_topic(topic: str) -> TopicSink:
    return TopicSink(options={"topic": topic}, place=PLACE)


def to_table(path: str) -> LakeSink:
    return LakeSink(format=LakeFormat.PARQUET, path=path, place=PLACE)


def to_console() -> ConsoleSink:
    return ConsoleSink(place=PLACE)


def pipeline(
    storage: Path, sources: list[Source], flows: list[Flow], name: str = "iot"
) -> Pipeline:
    return Pipeline(
        name=name,
        file="iot.yaml",
        storage=str(storage),
        parameters={},
        sources={source.name: source for source in sources},
        steps={},
        flows={each.name: each for each in flows},
        place=PLACE,
    )
