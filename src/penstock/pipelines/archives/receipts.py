"""What a task that archived a stretch of a partition tells the driver: JSON in one column."""

import dataclasses
import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby, pairwise

from penstock.pipelines.archives.ledger import Span
from penstock.pipelines.lakes import receipts as files_json
from penstock.pipelines.lakes.lake_table import DataFile

COLUMN = "receipt"
SCHEMA = f"{COLUMN} STRING"


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """All records of a span are in these files; what of it was lost is named."""

    span: Span
    files: tuple[DataFile, ...]
    lost: tuple[Span, ...] = ()

    def to_json(self) -> str:
        return json.dumps(
            {
                "span": dataclasses.asdict(self.span),
                "files": [files_json.to_json(file) for file in self.files],
                "lost": [dataclasses.asdict(span) for span in self.lost],
            }
        )

    @staticmethod
    def from_json(text: str) -> "Receipt":
        content = json.loads(text)
        return Receipt(
            span=Span(**content["span"]),
            files=tuple(files_json.from_json(file) for file in content["files"]),
            lost=tuple(Span(**span) for span in content["lost"]),
        )


def joined_spans(spans: Iterable[Span]) -> tuple[Span, ...]:
    """One span for each partition: several tasks may have shared one, without a gap."""
    joined = []
    ordered = sorted(spans, key=lambda span: (span.partition, span.start))
    for partition, group in groupby(ordered, key=lambda span: span.partition):
        parts = list(group)
        for before, after in pairwise(parts):
            assert before.stop == after.start, f"tasks left out what is from {before} to {after}"
        joined.append(Span(partition=partition, start=parts[0].start, stop=parts[-1].stop))
    return tuple(joined)
