"""Quality rules: counts the rows that break each, and keeps, drops, routes or refuses them.

Every rule is asked of every row, and each that a row breaks counts it. What becomes of the row is
said by the first rule that it breaks, in their order in the file; rules with the action `keep`
only count. The counters are Spark's observed metrics: `rules.<dataset>`, one column per rule.
"""

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import BooleanType

from penstock.pipelines.building.refusing import REFUSALS
from penstock.pipelines.building.spark_problems import problem_of
from penstock.pipelines.building.words import place_of_word
from penstock.pipelines.specification.model import Action, Rule
from penstock.pipelines.specification.problems import Problem
from penstock.spark.values.frames import quoted

OBSERVATION = "rules."
BROKEN_RULE = "broken_rule"
ALWAYS = "true"
# A row is shown in the sentence that fails a query, but not a novel.
ROW_LENGTH_MAX = 1000


def rule_problems(frame: DataFrame, rules: Sequence[Rule]) -> list[Problem]:
    """What is wrong with each rule by itself."""
    return [problem for rule in rules for problem in _problems(frame, rule)]


def lenient(rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """The same rules, with conditions that every row meets."""
    return tuple(replace(rule, condition=ALWAYS) for rule in rules)


def counted(frame: DataFrame, dataset: str, rules: Sequence[Rule]) -> DataFrame:
    """The same rows, of which Spark counts on their way those that break each rule."""
    if not rules:
        return frame
    counters = [sf.count_if(_broken(rule)).alias(rule.name) for rule in rules]
    return frame.observe(OBSERVATION + dataset, *counters)


def passed(frame: DataFrame, dataset: str, rules: Sequence[Rule]) -> DataFrame:
    """The rows that stay in the dataset; one that breaks a `fail` rule fails the query."""
    deciding = _deciding(rules)
    if not deciding:
        return frame
    verdict = sf.lit(True)
    for rule in reversed(deciding):
        is_failing = rule.action is Action.FAIL
        consequence = _failure(frame, dataset, rule) if is_failing else sf.lit(False)
        verdict = sf.when(_broken(rule), consequence).otherwise(verdict)
    return frame.where(verdict)


def rejected(frame: DataFrame, rules: Sequence[Rule]) -> DataFrame:
    """The rows that a `route` rule sends away, with the name of that rule."""
    name = sf.lit(None).cast("string")
    for rule in reversed(_deciding(rules)):
        routed = sf.lit(rule.name if rule.action is Action.ROUTE else None).cast("string")
        name = sf.when(_broken(rule), routed).otherwise(name)
    return frame.withColumn(BROKEN_RULE, name).where(sf.col(BROKEN_RULE).isNotNull())


def routes(rules: Sequence[Rule]) -> bool:
    return any(rule.action is Action.ROUTE for rule in rules)


def _deciding(rules: Sequence[Rule]) -> list[Rule]:
    return [rule for rule in rules if rule.action is not Action.KEEP]


def _broken(rule: Rule) -> Column:
    """Null does not keep a promise."""
    return ~sf.coalesce(sf.expr(rule.condition), sf.lit(False))


def _failure(frame: DataFrame, dataset: str, rule: Rule) -> Column:
    columns = [quoted(name) for name in frame.columns]
    row = sf.substring(sf.to_json(sf.struct(*columns)), 1, ROW_LENGTH_MAX)
    said = sf.concat(
        sf.lit(f"A row of {dataset} breaks the rule {rule.name} ({rule.condition}): "),
        row,
        sf.lit("."),
    )
    return sf.raise_error(said).cast("boolean")


def _problems(frame: DataFrame, rule: Rule) -> list[Problem]:
    try:
        found = frame.select(sf.expr(rule.condition).alias("condition")).schema["condition"]
        if isinstance(found.dataType, BooleanType):
            frame.observe("check", sf.count_if(_broken(rule)).alias("check"))
            return []
    except REFUSALS as error:
        return [problem_of(error, rule.place, rule.place)]
    said = f"The rule {rule.name} must be true or false, but is {found.dataType.simpleString()}."
    return [Problem(place_of_word(rule.place, rule.condition), said)]
