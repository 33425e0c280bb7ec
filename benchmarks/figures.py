"""A measured figure, its target, and how both are shown."""

import json
import platform
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

import penstock


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What has to be known to read the figures, such as where the processes ran."""

    topic: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Some figures as a drawing, which lies beside the report."""

    name: str
    svg: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number with its promise; without one it is shown for its own sake."""

    workload: str
    name: str
    value: float
    unit: str
    at_most: float | None = None
    at_least: float | None = None

    @property
    def verdict(self) -> str:
        if self.at_most is None and self.at_least is None:
            return ""
        too_much = self.at_most is not None and self.value > self.at_most
        too_little = self.at_least is not None and self.value < self.at_least
        return "FAIL" if too_much or too_little else "pass"

    @property
    def target(self) -> str:
        bounds = ((self.at_least, ">="), (self.at_most, "<="))
        shown = [f"{sign} {number(bound)}" for bound, sign in bounds if bound is not None]
        return f"{' and '.join(shown)} {self.unit}".strip() if shown else ""

    @property
    def line(self) -> str:
        judged = f"  ({self.target}: {self.verdict})" if self.target else ""
        return f"{self.workload}, {self.name}: {number(self.value)} {self.unit}{judged}"


def median(values: Sequence[float]) -> float:
    return float(statistics.median(values))


def number(value: float) -> str:
    """Three digits that matter, with thousands set apart."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def table(figures: Iterable[Figure]) -> str:
    rows = [("workload", "figure", "value", "target", "")]
    for figure in figures:
        value = f"{number(figure.value)} {figure.unit}"
        rows.append((figure.workload, figure.name, value, figure.target, figure.verdict))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def markdown(figures: Iterable[Figure]) -> str:
    """One table for each workload, to be copied to a page."""
    rows: dict[str, list[str]] = {}
    for figure in figures:
        value = f"{number(figure.value)} {figure.unit}".rstrip()
        target = f"{figure.target} ({figure.verdict})" if figure.target else ""
        rows.setdefault(figure.workload, []).append(f"| {figure.name} | {value} | {target} |")
    return "\n".join(
        "\n".join([f"| {workload} | figure | target |", "|---|---|---|", *lines, ""])
        for workload, lines in rows.items()
    )


def write_report(
    figures: Sequence[Figure],
    notes: Sequence[Note],
    pictures: Sequence[Picture],
    mode: str,
    folder: Path,
) -> Path:
    """Keep the figures with what is needed to compare them with those of another day."""
    now = datetime.now(UTC)
    report: dict[str, Any] = {
        "penstock": penstock.__version__,
        "mode": mode,
        "measured_at": now.isoformat(timespec="seconds"),
        "machine": {
            "system": platform.platform(),
            "python": platform.python_version(),
            "cores": psutil.cpu_count(),
            "memory_bytes": psutil.virtual_memory().total,
        },
        "notes": [asdict(note) for note in notes],
        "figures": [{**asdict(figure), "verdict": figure.verdict} for figure in figures],
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{now:%Y%m%dT%H%M%SZ}-{mode}.json"
    path.write_text(json.dumps(report, indent=2) + "\n")
    path.with_suffix(".md").write_text(markdown(figures))
    for picture in pictures:
        path.with_name(f"{path.stem}-{picture.name}.svg").write_text(picture.svg)
    return path
