"""Whether a reader's JSON Schema accepts all that a writer with another one may write.

The rules and the kinds of faults follow Confluent's. An object is open if it takes properties that
the schema does not name, closed if it takes none, and partially open if it takes some. A property
that is new to an open object may be there already with any type, so adding it is a fault; a closed
object has no such properties, so removing one is.
"""

from collections.abc import Callable, Generator, Iterator
from typing import Any, Final, Protocol

import re2

from penstock.registry.schemas import Fault

# Schemas that are compared; a schema with many alternatives meets the same ones often.
COMPARISONS_MAX: Final = 20_000
FAULTS_MAX: Final = 100

Document = Any


class Finds(Protocol):
    def find(self, reference: str, document: Any = None) -> tuple[Any, Any] | None: ...


def faults_reading(
    reader: Document, reader_refs: Finds, writer: Document, writer_refs: Finds
) -> list[Fault]:
    comparison = Comparison(reader_refs, writer_refs)
    return list(comparison.compare(reader, writer, "#/", (reader, writer)))[:FAULTS_MAX]


class Comparison:
    def __init__(self, reader_refs: Finds, writer_refs: Finds) -> None:
        self._reader_refs = reader_refs
        self._writer_refs = writer_refs
        # By the schemas' identities: whether they fit, or are being compared further up. The
        # schemas are kept, since an identity is used again for the next object.
        self._known: dict[tuple[int, int], bool] = {}
        self._kept: list[Any] = []
        self._left = COMPARISONS_MAX

    def compare(
        self, reader: Any, writer: Any, path: str, wholes: tuple[Any, Any]
    ) -> Iterator[Fault]:
        """`wholes` are the documents that references without an address are looked up in."""
        reader, reader_whole = _resolved(reader, self._reader_refs, wholes[0])
        writer, writer_whole = _resolved(writer, self._writer_refs, wholes[1])
        if _is_anything(reader) or writer is False:
            return
        if reader is False:
            yield _fault("TYPE_NARROWED", path, "accepts nothing")
            return
        pair = (id(reader), id(writer))
        if pair in self._known:
            if not self._known[pair]:
                yield _fault("TYPE_CHANGED", path, "does not fit")
            return
        self._left -= 1
        if self._left < 0:
            yield _fault("TOO_COMPLEX", path, "has too many alternatives to be compared")
            return
        self._known[pair] = True
        self._kept += (reader, writer)
        writer = {} if writer is True else writer
        found = list(self._compare_objects(reader, writer, path, (reader_whole, writer_whole)))
        self._known[pair] = not found
        yield from found

    def _compare_objects(
        self, reader: dict[str, Any], writer: dict[str, Any], path: str, wholes: tuple[Any, Any]
    ) -> Iterator[Fault]:
        handled = yield from self._compare_combined(reader, writer, path, wholes)
        if handled:
            return
        missing = _types(writer) - _types(reader)
        if missing:
            kind = "TYPE_NARROWED" if _types(reader) & _types(writer) else "TYPE_CHANGED"
            yield _fault(kind, path, f"does not accept {', '.join(sorted(missing))}")
            return
        yield from _compare_enums(reader, writer, path)
        kinds = _types(reader) & _types(writer)
        for kind, rules in _RULES.items():
            if kind in kinds:
                for rule in rules:
                    yield from rule(reader, writer, path)
        if "object" in kinds:
            yield from self._compare_properties(reader, writer, path, wholes)
        if "array" in kinds:
            yield from self._compare_items(reader, writer, path, wholes)
        if "not" in reader:
            if "not" not in writer:
                yield _fault("NOT_TYPE_EXTENDED", f"{path}not", "excludes more")
            else:
                # What the reader excludes, the writer must have excluded.
                flipped = Comparison(self._writer_refs, self._reader_refs)
                flipped._left = self._left
                inner = flipped.compare(
                    writer["not"], reader["not"], f"{path}not/", (wholes[1], wholes[0])
                )
                if next(inner, None) is not None:
                    yield _fault("NOT_TYPE_EXTENDED", f"{path}not", "excludes more")

    # Alternatives

    def _compare_combined(
        self, reader: dict[str, Any], writer: dict[str, Any], path: str, wholes: tuple[Any, Any]
    ) -> Generator[Fault, None, bool]:
        """Of `allOf`, `anyOf` and `oneOf`; returns whether that says all."""
        read_all = reader.get("allOf")
        if isinstance(read_all, list):
            written = writer.get("allOf")
            for index, each in enumerate(read_all):
                candidates = written if isinstance(written, list) else [writer]
                if not any(self._fits(each, one, wholes) for one in [*candidates, writer]):
                    place = f"{path}allOf/{index}"
                    yield _fault("PRODUCT_TYPE_EXTENDED", place, "asks for more than before")
            rest = {key: value for key, value in reader.items() if key != "allOf"}
            if _is_anything(rest):
                return True
        for word in ("anyOf", "oneOf"):
            written = writer.get(word)
            if isinstance(written, list):
                for index, each in enumerate(written):
                    if not self._fits(_without_all_of(reader), each, wholes):
                        place = f"{path}{word}/{index}"
                        yield _fault("SUM_TYPE_NARROWED", place, "does not accept an alternative")
                return True
        for word in ("anyOf", "oneOf"):
            read = reader.get(word)
            if isinstance(read, list):
                if not any(self._fits(each, writer, wholes) for each in read):
                    yield _fault("COMBINED_TYPE_CHANGED", f"{path}{word}", "has no alternative")
                return True
        written_all = writer.get("allOf")
        if isinstance(written_all, list) and not isinstance(read_all, list):
            if not any(self._fits(reader, each, wholes) for each in written_all):
                yield _fault("COMBINED_TYPE_CHANGED", path, "accepts less than all of before")
            return True
        return False

    def _fits(self, reader: Any, writer: Any, wholes: tuple[Any, Any]) -> bool:
        return next(self.compare(reader, writer, "", wholes), None) is None

    # Objects

    def _compare_properties(
        self, reader: dict[str, Any], writer: dict[str, Any], path: str, wholes: tuple[Any, Any]
    ) -> Iterator[Fault]:
        read, written = _properties(reader), _properties(writer)
        for name, schema in written.items():
            place = f"{path}properties/{name}"
            if name in read:
                yield from self.compare(read[name], schema, f"{place}/", wholes)
            else:
                yield from self._removed(name, schema, reader, place, wholes)
        for name, schema in read.items():
            if name not in written:
                place = f"{path}properties/{name}"
                yield from self._added(name, schema, reader, writer, place, wholes)
        yield from self._compare_required(reader, writer, path)
        yield from self._compare_additional(reader, writer, path, wholes)

    def _removed(
        self, name: str, schema: Any, reader: dict[str, Any], place: str, wholes: tuple[Any, Any]
    ) -> Iterator[Fault]:
        cover = _cover(reader, name)
        if cover is True or schema is False:
            return
        if cover is False:
            yield _fault("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", place, "is not accepted")
        elif not self._fits(cover, schema, wholes):
            kind = "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
            yield _fault(kind, place, "is not accepted")

    def _added(
        self,
        name: str,
        schema: Any,
        reader: dict[str, Any],
        writer: dict[str, Any],
        place: str,
        wholes: tuple[Any, Any],
    ) -> Iterator[Fault]:
        cover = _cover(writer, name)
        if cover is True:
            if not _is_anything(schema):
                kind = "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"
                yield _fault(kind, place, "may have been written with any type before")
        elif cover is not False and not self._fits(schema, cover, wholes):
            kind = "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
            yield _fault(kind, place, "may have been written with another type before")
        if cover is False and name in _required(reader) and not _has_default(schema):
            kind = "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL"
            yield _fault(kind, place, "is required and was never written")

    def _compare_required(
        self, reader: dict[str, Any], writer: dict[str, Any], path: str
    ) -> Iterator[Fault]:
        read, written = _properties(reader), _properties(writer)
        for name in sorted(_required(reader) - _required(writer)):
            # A property that is new to a closed object is reported with it.
            is_new = name not in written and _cover(writer, name) is False
            if not is_new and not _has_default(read.get(name, {})):
                place = f"{path}required/{name}"
                yield _fault("REQUIRED_ATTRIBUTE_ADDED", place, "is required now")

    def _compare_additional(
        self, reader: dict[str, Any], writer: dict[str, Any], path: str, wholes: tuple[Any, Any]
    ) -> Iterator[Fault]:
        read, written = _additional(reader), _additional(writer)
        place = f"{path}additionalProperties"
        if written is False or read is True:
            return
        if read is False:
            yield _fault("ADDITIONAL_PROPERTIES_REMOVED", place, "accepts no more of them")
        elif not self._fits(read, written, wholes):
            yield _fault("ADDITIONAL_PROPERTIES_NARROWED", place, "accepts less of them")

    # Arrays

    def _compare_items(
        self, reader: dict[str, Any], writer: dict[str, Any], path: str, wholes: tuple[Any, Any]
    ) -> Iterator[Fault]:
        read_first, read_rest = _items(reader)
        written_first, written_rest = _items(writer)
        for index in range(max(len(read_first), len(written_first))):
            read = read_first[index] if index < len(read_first) else read_rest
            written = written_first[index] if index < len(written_first) else written_rest
            yield from self.compare(read, written, f"{path}items/{index}/", wholes)
        yield from self.compare(read_rest, written_rest, f"{path}items/", wholes)


def _resolved(schema: Any, refs: Finds, whole: Any) -> tuple[Any, Any]:
    """What a `$ref` stands for; one that leads nowhere but to itself accepts anything."""
    seen: set[int] = set()
    while isinstance(schema, dict) and isinstance(schema.get("$ref"), str):
        if id(schema) in seen:
            return True, whole
        seen.add(id(schema))
        found = refs.find(schema["$ref"], whole)
        if found is None:
            return True, whole
        schema, whole = found
    return schema, whole


# What says nothing about values.
_NOTES: Final = frozenset(
    {
        "$schema",
        "$id",
        "id",
        "$anchor",
        "$comment",
        "$defs",
        "definitions",
        "title",
        "description",
        "default",
        "examples",
        "readOnly",
        "writeOnly",
        "deprecated",
        "format",
    }
)
_ALL_TYPES: Final = frozenset({"null", "boolean", "object", "array", "number", "integer", "string"})


def _is_anything(schema: Any) -> bool:
    if isinstance(schema, dict):
        return all(key in _NOTES for key in schema)
    return schema is True


def _without_all_of(schema: dict[str, Any]) -> dict[str, Any]:
    if "allOf" not in schema:
        return schema
    return {key: value for key, value in schema.items() if key != "allOf"}


def _types(schema: dict[str, Any]) -> frozenset[str]:
    given = schema.get("type")
    if given is None:
        values = schema.get("enum", [schema["const"]] if "const" in schema else None)
        if not isinstance(values, list):
            return _ALL_TYPES
        return frozenset(map(_type_of, values))
    found = {given} if isinstance(given, str) else set(given)
    # Every integer is a number.
    return frozenset(found | ({"integer"} if "number" in found else set()))


def _type_of(value: Any) -> str:
    for kind, name in _KINDS:
        if isinstance(value, kind):
            return name
    return "null"


_KINDS: Final[tuple[tuple[type, str], ...]] = (
    (bool, "boolean"),
    (int, "integer"),
    (float, "number"),
    (str, "string"),
    (dict, "object"),
    (list, "array"),
)


def _compare_enums(reader: dict[str, Any], writer: dict[str, Any], path: str) -> Iterator[Fault]:
    accepted = _values(reader)
    if accepted is None:
        return
    written = _values(writer)
    if written is None:
        if not (_types(writer) <= {"null", "boolean"}):
            yield _fault("ENUM_ARRAY_CHANGED", f"{path}enum", "accepts only some values now")
        return
    if any(value not in accepted for value in written):
        yield _fault("ENUM_ARRAY_NARROWED", f"{path}enum", "accepts less values")


def _values(schema: dict[str, Any]) -> list[Any] | None:
    if "const" in schema:
        return [schema["const"]]
    found = schema.get("enum")
    return found if isinstance(found, list) else None


Rule = Callable[[dict[str, Any], dict[str, Any], str], Iterator[Fault]]


def _at_most(word: str, name: str) -> Rule:
    """The reader may not have a smaller upper bound."""
    return _bound(word, name, lambda read, written: read < written, "DECREASED")


def _at_least(word: str, name: str) -> Rule:
    return _bound(word, name, lambda read, written: read > written, "INCREASED")


def _bound(word: str, name: str, is_tighter: Callable[[Any, Any], bool], kind: str) -> Rule:
    def rule(reader: dict[str, Any], writer: dict[str, Any], path: str) -> Iterator[Fault]:
        read, written = reader.get(word), writer.get(word)
        if not _is_number(read):
            return
        if not _is_number(written):
            yield _fault(f"{name}_ADDED", f"{path}{word}", "is a new bound")
        elif is_tighter(read, written):
            yield _fault(f"{name}_{kind}", f"{path}{word}", "is a tighter bound")

    return rule


def _multiple(reader: dict[str, Any], writer: dict[str, Any], path: str) -> Iterator[Fault]:
    read: Any = reader.get("multipleOf")
    written: Any = writer.get("multipleOf")
    if not _is_number(read) or read == written:
        return
    if not _is_number(written):
        yield _fault("MULTIPLE_OF_ADDED", f"{path}multipleOf", "is a new condition")
    elif written % read:
        yield _fault("MULTIPLE_OF_CHANGED", f"{path}multipleOf", "is another condition")


def _pattern(reader: dict[str, Any], writer: dict[str, Any], path: str) -> Iterator[Fault]:
    read, written = reader.get("pattern"), writer.get("pattern")
    if read is not None and read != written:
        kind = "PATTERN_ADDED" if written is None else "PATTERN_CHANGED"
        yield _fault(kind, f"{path}pattern", "is another condition")


def _unique(reader: dict[str, Any], writer: dict[str, Any], path: str) -> Iterator[Fault]:
    if reader.get("uniqueItems") is True and writer.get("uniqueItems") is not True:
        yield _fault("UNIQUE_ITEMS_ADDED", f"{path}uniqueItems", "is a new condition")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_RULES: Final[dict[str, tuple[Rule, ...]]] = {
    "string": (
        _at_most("maxLength", "MAX_LENGTH"),
        _at_least("minLength", "MIN_LENGTH"),
        _pattern,
    ),
    # Every number that is accepted may be an integer, so this covers both.
    "integer": (
        _at_most("maximum", "MAXIMUM"),
        _at_least("minimum", "MINIMUM"),
        _at_most("exclusiveMaximum", "EXCLUSIVE_MAXIMUM"),
        _at_least("exclusiveMinimum", "EXCLUSIVE_MINIMUM"),
        _multiple,
    ),
    "array": (_at_most("maxItems", "MAX_ITEMS"), _at_least("minItems", "MIN_ITEMS"), _unique),
    "object": (
        _at_most("maxProperties", "MAX_PROPERTIES"),
        _at_least("minProperties", "MIN_PROPERTIES"),
    ),
}


def _properties(schema: dict[str, Any]) -> dict[str, Any]:
    found = schema.get("properties")
    return found if isinstance(found, dict) else {}


def _required(schema: dict[str, Any]) -> set[str]:
    found = schema.get("required")
    return {each for each in found if isinstance(each, str)} if isinstance(found, list) else set()


def _has_default(schema: Any) -> bool:
    return isinstance(schema, dict) and "default" in schema


def _additional(schema: dict[str, Any]) -> Any:
    found = schema.get("additionalProperties", True)
    return True if _is_anything(found) else found


def _cover(schema: dict[str, Any], name: str) -> Any:
    """What a schema accepts for a property that it does not name: a schema, True or False."""
    patterns = schema.get("patternProperties")
    for pattern, found in patterns.items() if isinstance(patterns, dict) else ():
        if _matches(pattern, name):
            return found
    return _additional(schema)


def _matches(pattern: str, name: str) -> bool:
    try:
        # Not Python's own: a pattern can keep that busy for ever.
        return re2.search(pattern, name) is not None
    except re2.error:
        return False


def _items(schema: dict[str, Any]) -> tuple[list[Any], Any]:
    """The schemas of the first items, and that of all others."""
    first, items = schema.get("prefixItems"), schema.get("items", True)
    if isinstance(first, list):
        return first, items
    if isinstance(items, list):
        return items, schema.get("additionalItems", True)
    return [], items


def _fault(kind: str, path: str, what: str) -> Fault:
    return Fault(kind, f'The new schema at path "{path or "#/"}" {what}', path)
