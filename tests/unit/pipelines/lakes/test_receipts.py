"""A receipt comes back from its JSON as it was, with the types of its bounds."""

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest

from penstock.pipelines.lakes.lake_table import ColumnStatistics, DataFile
from penstock.pipelines.lakes.receipts import from_json, to_json


@pytest.mark.parametrize(
    "bound",
    [
        None,
        -5,
        2**62,
        1.5,
        float("inf"),
        "ü",
        date(1, 1, 1),
        datetime(2026, 1, 1, 0, 0, 0, 1, UTC),
        datetime(2026, 1, 1),
        time(1, 2, 3, 4),
        Decimal("123456789012345678901234567890.12"),
    ],
)
def test_a_receipt_survives_json(bound: Any) -> None:
    file = DataFile(
        path="data/q/0-a/part.parquet",
        rows=3,
        size=10,
        sha256="00",
        partition={"sensor": None, "day": "2026-01-01"},
        statistics={"x": ColumnStatistics(nulls=1, least=bound, greatest=bound)},
    )
    text = json.dumps(to_json(file), allow_nan=False)
    assert from_json(json.loads(text)) == file
