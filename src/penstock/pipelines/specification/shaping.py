"""Reads what is done to the rows of one dataset: decoding, the watermark, the rules."""

import re
from pathlib import Path

from penstock.pipelines.specification.context import Context, nearest_or_known
from penstock.pipelines.specification.fields import Fields, shown
from penstock.pipelines.specification.model import (
    Action,
    Decoding,
    Restart,
    Rule,
    ValueFormat,
    Watermark,
)
from penstock.pipelines.specification.tree import Entries, Node, Scalar

RECORD_COLUMNS = (
    "key",
    "value",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
    "headers",
)

DECODE_KEYS = ("format", "column", "schema", "into", "keep", "options")
WATERMARK_KEYS = ("column", "delay")
RULE_KEYS = ("condition", "action")
RESTART_KEYS = ("attempts", "pause", "pause_max")
_UNIT = r"(?:(?:micro|milli)?second|minute|hour|day|week|month|year)s?"
_INTERVAL = re.compile(rf"(?:interval\s+)?\d+(?:\.\d+)?\s*{_UNIT}(?:\s+\d+(?:\.\d+)?\s*{_UNIT})*")
_DAY_S = 86_400.0
_UNIT_S = {
    "microsecond": 1e-6,
    "millisecond": 1e-3,
    "second": 1.0,
    "minute": 60.0,
    "hour": 3_600.0,
    "day": _DAY_S,
    "week": 7 * _DAY_S,
    "month": 30 * _DAY_S,
    "year": 365 * _DAY_S,
}
_PART = re.compile(rf"(\d+(?:\.\d+)?)\s*({'|'.join(_UNIT_S)})")


def read_decoding(node: Node, context: Context, *, owner: str) -> Decoding | None:
    """`decode: {format: json, schema: ...}`, or only the format as in `decode: text`."""
    before = len(context.problems)
    owner = f"decode of {owner}"
    if isinstance(node, Scalar) and not node.is_null:
        key = Scalar(text="format", place=node.place, text_place=node.place)
        node = Entries(entries=((key, node),), place=node.place)
    fields = Fields(node, context, owner=owner, known=DECODE_KEYS)
    fields.needed("format")
    value_format = fields.choice("format", ValueFormat, ValueFormat.TEXT)
    schema = _schema(fields, value_format, context, owner=owner)
    keep = _keep(fields, context, owner=owner)
    decoding = Decoding(
        format=value_format,
        column=fields.text("column", "value"),
        schema=schema,
        into=fields.text("into", "text"),
        options=fields.pairs("options"),
        place=fields.text_place("schema") if fields.has("schema") else node.place,
        **({} if keep is None else {"keep": keep}),
    )
    return None if len(context.problems) > before else decoding


def _schema(
    fields: Fields, value_format: ValueFormat, context: Context, *, owner: str
) -> str | None:
    found = fields.scalar("schema")
    if value_format is ValueFormat.TEXT:
        if found is not None and fields.text("format") == value_format:
            context.problem(fields.key_place("schema"), "The format text takes no schema.")
        return None
    if found is None:
        if not fields.has("schema"):
            said = (
                f"The key schema is missing in {owner}: the format {value_format} needs a schema."
            )
            context.problem(fields.place, said)
        return None
    if value_format is ValueFormat.JSON or found.text.lstrip()[:1] in ("{", "[", '"'):
        return found.text
    path = context.path(found.text)
    if not Path(path).is_file() and not context.lacks_value(found):
        context.problem(found.place, f"There is no file {shown(found)} with the schema.")
    return path


def _keep(fields: Fields, context: Context, *, owner: str) -> tuple[str, ...] | None:
    if not fields.has("keep"):
        return None
    kept = fields.scalars("keep")
    for column in kept:
        if column.text not in RECORD_COLUMNS:
            hint = nearest_or_known(column.text, RECORD_COLUMNS)
            said = f"A record has no column {column.text} to keep in {owner}{hint}."
            context.problem(column.place, said)
    return tuple(column.text for column in kept)


def read_watermark(node: Node, context: Context, *, owner: str) -> Watermark | None:
    before = len(context.problems)
    owner = f"watermark of {owner}"
    fields = Fields(node, context, owner=owner, known=WATERMARK_KEYS)
    column = fields.needed_text("column")
    delay = read_interval(fields, "delay", context, owner=owner, is_needed=True)
    if len(context.problems) > before or delay is None:
        return None
    return Watermark(column=column, delay=delay, place=fields.text_place("column"))


def read_interval(
    fields: Fields, name: str, context: Context, *, owner: str, is_needed: bool = False
) -> str | None:
    """A length of time in Spark's words."""
    found = fields.needed(name) if is_needed else fields.scalar(name)
    if found is None or not found.text.strip():
        return None
    if not _INTERVAL.fullmatch(found.text.strip().lower()) and not context.lacks_value(found):
        said = f"The key {name} in {owner} must be a time such as 10 seconds or 5 minutes"
        context.problem(found.place, f"{said}, not {shown(found)}.")
    return found.text.strip()


def read_restart(fields: Fields, context: Context) -> Restart:
    """`restart: {attempts: 10, pause: 1 second, pause_max: 2 minutes}`."""
    node = fields.node("restart")
    if node is None:
        return Restart()
    owner = "restart of the pipeline"
    said = Fields(node, context, owner=owner, known=RESTART_KEYS)
    usual = Restart()
    first = _seconds(read_interval(said, "pause", context, owner=owner))
    longest = _seconds(read_interval(said, "pause_max", context, owner=owner))
    pause_s = usual.pause_s if first is None else first
    return Restart(
        attempts=said.whole_number("attempts", usual.attempts),
        pause_s=pause_s,
        pause_s_max=max(pause_s, usual.pause_s_max if longest is None else longest),
    )


def _seconds(interval: str | None) -> float | None:
    """None also for what is not a length of time, which is a problem already."""
    if interval is None or not _INTERVAL.fullmatch(interval.lower()):
        return None
    return sum(float(count) * _UNIT_S[unit] for count, unit in _PART.findall(interval.lower()))


def read_rules(
    entries: tuple[tuple[Scalar, Node], ...], context: Context, *, owner: str
) -> tuple[Rule, ...]:
    """By name; only a condition instead of a map means that broken rows are counted and kept."""
    found = []
    for key, node in entries:
        if not key.text.isidentifier():
            said = "must start with a letter and hold only letters, digits and underscores"
            context.problem(key.place, f'The name of the rule "{key.text}" {said}.')
        if isinstance(node, Scalar) and not node.is_null:
            condition = context.filled(node)
            place = condition.text_place
            found.append(
                Rule(name=key.text, condition=condition.text, action=Action.KEEP, place=place)
            )
            continue
        fields = Fields(
            node,
            context,
            owner=f"the rule {key.text} of {owner}",
            known=RULE_KEYS,
        )
        found.append(
            Rule(
                name=key.text,
                condition=fields.needed_text("condition"),
                action=fields.choice("action", Action, Action.KEEP),
                place=fields.text_place("condition"),
            )
        )
    return tuple(found)


def read_shape(
    fields: Fields, context: Context, *, owner: str
) -> tuple[Watermark | None, tuple[Rule, ...]]:
    """What every dataset may have, a source as well as a step."""
    node = fields.node("watermark")
    watermark = None if node is None else read_watermark(node, context, owner=owner)
    return watermark, read_rules(fields.entries("rules"), context, owner=owner)
