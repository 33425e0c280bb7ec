"""Samples as text: Prometheus's format 0.0.4, or OpenMetrics 1.0 for those who ask for it.

prometheus-client takes about 6 us for a sample, which a node with thousands of series can't
afford; this takes less than a tenth. Its parsers are what the tests check the text with.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final

from penstock.observe.families import FAMILIES, Family, Kind, Sample, Samples

PLAIN_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_OPEN_METRICS: Final = "application/openmetrics-text"
_TOTAL: Final = "_total"


def content_type(accept: str) -> str:
    """What to answer for this Accept header: OpenMetrics only if it is named and not refused."""
    for part in accept.split(","):
        media, *parameters = (item.strip() for item in part.split(";"))
        if media.lower() == _OPEN_METRICS:
            refused = any(item.replace(" ", "").lower() in ("q=0", "q=0.0") for item in parameters)
            return PLAIN_TYPE if refused else OPEN_METRICS_TYPE
    return PLAIN_TYPE


def exposition(samples: Samples, kind: str = PLAIN_TYPE) -> bytes:
    return b"".join(pieces(samples, kind))


def pieces(samples: Samples, kind: str = PLAIN_TYPE) -> Iterator[bytes]:
    """The text family by family, in the order of the table, so that others have a turn between."""
    is_open = kind == OPEN_METRICS_TYPE
    for name, family in FAMILIES.items():
        found = samples.get(name)
        if found:
            yield "".join((_head(family, is_open), *_lines(family, found))).encode()
    if is_open:
        yield b"# EOF\n"


def _head(family: Family, is_open: bool) -> str:
    name = family.name
    if is_open and family.kind is Kind.COUNTER:
        name = name.removesuffix(_TOTAL)
    text = family.help.replace("\\", r"\\").replace("\n", r"\n")
    if is_open:
        text = text.replace('"', r"\"")
    return f"# HELP {name} {text}\n# TYPE {name} {family.kind}\n"


def _lines(family: Family, samples: Iterable[Sample]) -> Iterator[str]:
    name, labels = family.name, family.labels
    if family.kind is Kind.HISTOGRAM:
        for values, sample in samples:
            assert isinstance(sample, Sequence)
            yield _histogram(family, _labels(labels, values), sample)
        return
    for values, value in samples:
        assert not isinstance(value, Sequence)
        shown = _labels(labels, values)
        yield f"{name}{{{shown}}} {_number(value)}\n" if shown else f"{name} {_number(value)}\n"


def _histogram(family: Family, labels: str, sample: Sequence[float]) -> str:
    *counts, total = sample
    name = family.name
    before = f"{labels}," if labels else ""
    sums = list(accumulate(counts))
    bounds = (*(_number(bound) for bound in family.bounds), "+Inf")
    lines = [
        f'{name}_bucket{{{before}le="{bound}"}} {_number(count)}\n'
        for bound, count in zip(bounds, sums, strict=True)
    ]
    shown = f"{{{labels}}}" if labels else ""
    lines.append(f"{name}_sum{shown} {_number(total)}\n{name}_count{shown} {_number(sums[-1])}\n")
    return "".join(lines)


def _labels(names: Sequence[str], values: Sequence[str]) -> str:
    assert len(names) == len(values), f"{names} can't have the values {values}"
    return ",".join(
        f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True)
    )


def _escaped(value: str) -> str:
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return value


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if math.isnan(value):
        return "NaN"
    return repr(float(value))
