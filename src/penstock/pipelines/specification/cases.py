"""Reads the tests of a pipeline: rows that are given, and rows that are expected."""

import base64
import binascii

from penstock.pipelines.specification.context import Context
from penstock.pipelines.specification.fields import Fields, shown
from penstock.pipelines.specification.model import Case, Row
from penstock.pipelines.specification.steps import InputPlaces
from penstock.pipelines.specification.tree import Entries, Items, Node, Scalar, plain_value

KEYS = ("name", "given", "expect")


def read_case(number: int, node: Node, context: Context, places: InputPlaces) -> Case:
    """One test, with those of its rows that have no problem; notes in `places` what it names."""
    before = len(context.problems)
    fields = Fields(node, context, owner=f"test {number}", known=KEYS)
    name = fields.text("name", f"test {number}")
    owner = f'the test "{name}"'
    given = {
        key.text: _batches(key.text, rows, context, owner=owner)
        for key, rows in fields.entries("given")
    }
    expected = {
        key.text: _rows(key.text, rows, context, owner=owner)
        for key, rows in fields.entries("expect")
    }
    for key, _ in (*fields.entries("given"), *fields.entries("expect")):
        places[name, key.text] = key.place
    for part, rows_of in (("given", given), ("expect", expected)):
        if not rows_of and len(context.problems) == before:
            context.problem(fields.place, f"The key {part} is missing in {owner}.")
    return Case(name=name, given=given, expected=expected, place=fields.place)


def _batches(
    dataset: str, node: Node, context: Context, *, owner: str
) -> tuple[tuple[Row, ...], ...]:
    """A list of lists is several micro-batches; a list of rows is one."""
    if isinstance(node, Items) and node.items and all(isinstance(one, Items) for one in node.items):
        return tuple(_rows(dataset, batch, context, owner=owner) for batch in node.items)
    return (_rows(dataset, node, context, owner=owner),)


def _rows(dataset: str, node: Node, context: Context, *, owner: str) -> tuple[Row, ...]:
    if isinstance(node, Scalar) and node.is_null:
        return ()
    if not isinstance(node, Items):
        said = f"The rows of {dataset} in {owner} must be a list, not {shown(node)}."
        context.problem(node.place, said)
        return ()
    rows = []
    for item in node.items:
        if isinstance(item, Entries):
            rows.append({key.text: _value(one, context) for key, one in item.entries})
        else:
            said = f"A row of {dataset} in {owner} must be a map of columns, not {shown(item)}."
            context.problem(item.place, said)
    return tuple(rows)


def _value(node: Node, context: Context) -> object:
    if isinstance(node, Entries):
        return {key.text: _value(one, context) for key, one in node.entries}
    if isinstance(node, Items):
        return [_value(one, context) for one in node.items]
    scalar = context.filled(node)
    if scalar.is_binary:
        try:
            return base64.b64decode("".join(scalar.text.split()), validate=True)
        except binascii.Error:
            context.problem(scalar.place, f"{shown(scalar)} is not Base64.")
            return b""
    return plain_value(scalar.text) if scalar.is_plain else scalar.text
