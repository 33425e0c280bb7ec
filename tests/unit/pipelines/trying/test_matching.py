"""Rows are compared in any order, only in the columns that are named, and each row counts once."""

import math
import random
from typing import Any

from pyspark.sql import types as spark

from penstock.pipelines.trying.matching import fits, match_rows

SCHEMA = spark.StructType().add("sensor", "string").add("mean", "double").add("count", "long")


def row(sensor: str | None, mean: float = 0.0, count: int = 0) -> dict[str, Any]:
    return {"sensor": sensor, "mean": mean, "count": count}


def test_order_does_not_matter_and_unnamed_columns_are_not_compared() -> None:
    found = [row("b", 2.0, 7), row("a", 1.0, 9)]
    matching = match_rows([{"sensor": "a"}, {"sensor": "b", "mean": 2.0}], found, SCHEMA)
    assert matching.is_complete
    assert matching.pairs == {0: 1, 1: 0}


def test_a_row_counts_as_often_as_it_comes() -> None:
    matching = match_rows([row("a")], [row("a"), row("a")], SCHEMA)
    assert (matching.missing, matching.unexpected) == ((), (1,))
    matching = match_rows([row("a"), row("a")], [row("a")], SCHEMA)
    assert (matching.missing, matching.unexpected) == ((1,), ())


def test_a_vague_row_leaves_the_only_partner_to_a_precise_one() -> None:
    found = [row("a", 1.0), row("a", 2.0), row("a", 3.0)]
    vague = {"sensor": "a"}
    matching = match_rows([vague, vague, {"sensor": "a", "mean": 1.0}], found, SCHEMA)
    assert matching.is_complete
    assert matching.pairs[2] == 0


def test_as_many_rows_as_possible_are_paired() -> None:
    """Against the plain recursive form of the same search, on random rows."""
    chance = random.Random(7)
    for _ in range(200):
        found = [row(chance.choice("ab"), chance.choice([1.0, 2.0]), n % 2) for n in range(6)]
        expected = [_vague(one, chance) for one in chance.sample(found, k=4)]
        expected += [_vague(row(chance.choice("abc"), 1.0, 1), chance) for _ in range(2)]
        matching = match_rows(expected, found, SCHEMA)
        assert len(matching.pairs) == len(set(matching.pairs.values())) == _most(expected, found)


def _vague(full: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    names = chance.sample(list(full), k=chance.randint(1, 3))
    return {name: full[name] for name in names}


def _most(expected: list[dict[str, Any]], found: list[dict[str, Any]]) -> int:
    if not expected:
        return 0
    first, rest = expected[0], expected[1:]
    best = _most(rest, found)
    for index, one in enumerate(found):
        if all(one[name] == value for name, value in first.items()):
            best = max(best, 1 + _most(rest, found[:index] + found[index + 1 :]))
    return best


def test_values_of_each_type_are_compared_as_what_they_are() -> None:
    double = spark.DoubleType()
    assert fits(0.3, 0.1 + 0.2, double)
    assert not fits(0.3, 0.3001, double)
    assert fits(math.nan, math.nan, double)
    assert not fits(math.nan, 1.0, double)
    assert fits(None, None, double)
    assert not fits(None, 0.0, double)
    assert fits([0.3], [0.1 + 0.2], spark.ArrayType(double))
    assert not fits([1.0], [1.0, 2.0], spark.ArrayType(double))
    counts = spark.MapType(spark.StringType(), double)
    assert fits([("a", 1.0), ("b", 2.0)], [("b", 2.0), ("a", 1.0)], counts)
    assert not fits([("a", 1.0)], [("b", 1.0)], counts)
    assert fits({"count": 1}, row("a", 1.0, 1), SCHEMA)
