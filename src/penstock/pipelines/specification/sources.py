"""Reads the sources of a pipeline: topics, files, tables of files, archives."""

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType

from penstock.pipelines.specification.context import Context
from penstock.pipelines.specification.fields import (
    Fields,
    corrected,
    entries_of,
    every_key,
    kind_of,
    listed,
    shown,
)
from penstock.pipelines.specification.model import (
    ArchiveSource,
    Decoding,
    FileSource,
    LakeFormat,
    Source,
    TableSource,
    TopicSource,
)
from penstock.pipelines.specification.problems import Place
from penstock.pipelines.specification.shaping import read_decoding, read_shape
from penstock.pipelines.specification.topic_options import (
    BOOTSTRAP,
    BROKERS_DEFAULT,
    is_read_option,
    read_topic_options,
)
from penstock.pipelines.specification.tree import Entries, Node, Scalar, plain_value

FILE_FORMATS = ("csv", "json", "parquet", "orc", "text", "xml", "binaryFile")

_SHAPE = ("watermark", "rules")
_TOPIC_KEYS = ("topic", "topics", "pattern")
# What says of which kind a source is, with the keys that such a source may have.
KEYS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        **dict.fromkeys(
            _TOPIC_KEYS,
            (*_TOPIC_KEYS, "brokers", "starting", "options", "decode", *_SHAPE, "dead_letters"),
        ),
        "files": ("files", "format", "schema", "stream", "options", *_SHAPE),
        "table": ("table", "format", "schema", "stream", "options", *_SHAPE),
        "archive": ("archive", "stream", "options", "decode", *_SHAPE, "dead_letters"),
    }
)


def read_source(name: str, place: Place, node: Node, context: Context) -> Source | None:
    """One source, or None after its problems were reported."""
    before = len(context.problems)
    owner = f"the source {name}"
    entries = entries_of(node, context, owner=owner)
    entries = corrected(
        entries, context, owner=owner, known=every_key(KEYS), is_option=is_read_option
    )
    kind = kind_of(entries, KEYS, context, either=f"The source {name} reads")
    if kind is None:
        if len(context.problems) == before:
            said = f"The source {name} does not say what it reads: give {listed(tuple(KEYS))}."
            context.problem(place, said)
        return None
    fields = Fields(entries, context, owner=owner, known=KEYS[kind], place=place)
    source = _READERS[kind](name, place, fields, context)
    return source if len(context.problems) == before else None


def dead_letters_topic(node: Node, context: Context) -> Scalar | None:
    """The topic of the shorthand `dead_letters: TOPIC` in a source."""
    found = node.find("dead_letters") if isinstance(node, Entries) else None
    if found is None:
        return None
    if not isinstance(found, Scalar) or found.is_null:
        said = f"The key dead_letters must be the name of a topic, not {shown(found)}."
        context.problem(found.place, said)
        return None
    if isinstance(node, Entries) and node.find("decode") is None:
        said = "The key dead_letters needs decode: only what can't be decoded is a dead letter."
        context.problem(found.place, said)
        return None
    return context.filled(found)


def _topic_source(name: str, place: Place, fields: Fields, context: Context) -> TopicSource:
    owner = f"the source {name}"
    short: dict[str, tuple[str, str]] = {
        BOOTSTRAP: ("brokers", fields.text("brokers", BROKERS_DEFAULT)),
        "startingOffsets": ("starting", _starting(fields, context)),
    }
    if fields.has("pattern"):
        short["subscribePattern"] = ("pattern", fields.needed_text("pattern"))
    elif fields.has("topics"):
        short["subscribe"] = ("topics", ",".join(fields.texts("topics")))
    else:
        short["subscribe"] = ("topic", fields.needed_text("topic"))
    options = read_topic_options(fields, context, short=short, is_source=True)
    decoding = _decoding(fields, context, owner=owner)
    watermark, rules = read_shape(fields, context, owner=owner)
    return TopicSource(
        name=name,
        options=options,
        decoding=decoding,
        watermark=watermark,
        rules=rules,
        place=place,
    )


def _starting(fields: Fields, context: Context) -> str:
    """A word, JSON, or the offsets by topic and partition as a map."""
    node = fields.node("starting")
    if not isinstance(node, Entries):
        return fields.text("starting", "earliest")
    offsets = {topic.text: _offsets(topic.text, found, context) for topic, found in node.entries}
    return json.dumps(offsets)


def _offsets(topic: str, node: Node, context: Context) -> dict[str, object]:
    """By partition; what is not an offset is reported."""
    found: dict[str, object] = {}
    entries = entries_of(node, context, owner=f"the topic {topic} in the key starting")
    for partition, offset in entries.entries:
        if isinstance(offset, Scalar):
            found[partition.text] = plain_value(context.filled(offset).text)
        else:
            said = f"The offset of partition {partition.text} in the key starting"
            context.problem(offset.place, f"{said} must be a number, not {shown(offset)}.")
    return found


def _decoding(fields: Fields, context: Context, *, owner: str) -> Decoding | None:
    node = fields.node("decode")
    return None if node is None else read_decoding(node, context, owner=owner)


def _file_source(name: str, place: Place, fields: Fields, context: Context) -> FileSource:
    path = fields.needed_text("files")
    found = fields.needed("format")
    file_format = "" if found is None else found.text
    if found is not None and file_format not in FILE_FORMATS and not context.lacks_value(found):
        wanted = listed(FILE_FORMATS)
        said = f"The key format in the source {name} must be {wanted}, not {shown(found)}."
        context.problem(found.place, said)
    # Spark's reader of text has one column, whatever the file.
    schema = "value STRING" if file_format == "text" else fields.needed_text("schema")
    watermark, rules = read_shape(fields, context, owner=f"the source {name}")
    return FileSource(
        name=name,
        path=context.path(path),
        format=file_format,
        schema=fields.text("schema", schema),
        schema_place=fields.text_place("schema"),
        is_stream=fields.flag("stream", True),
        options=fields.pairs("options"),
        watermark=watermark,
        rules=rules,
        place=place,
    )


def _table_source(name: str, place: Place, fields: Fields, context: Context) -> TableSource:
    path = fields.needed_text("table")
    fields.needed("format")
    watermark, rules = read_shape(fields, context, owner=f"the source {name}")
    return TableSource(
        name=name,
        format=fields.choice("format", LakeFormat, LakeFormat.PARQUET),
        path=context.path(path),
        schema=fields.text_or_none("schema"),
        schema_place=fields.text_place("schema") if fields.has("schema") else None,
        is_stream=fields.flag("stream", False),
        options=fields.pairs("options"),
        watermark=watermark,
        rules=rules,
        place=place,
    )


def _archive_source(name: str, place: Place, fields: Fields, context: Context) -> ArchiveSource:
    owner = f"the source {name}"
    path = fields.needed_text("archive")
    decoding = _decoding(fields, context, owner=owner)
    watermark, rules = read_shape(fields, context, owner=owner)
    return ArchiveSource(
        name=name,
        path=context.path(path),
        is_stream=fields.flag("stream", True),
        options=fields.pairs("options"),
        decoding=decoding,
        watermark=watermark,
        rules=rules,
        place=place,
    )


_READERS: Mapping[str, Callable[[str, Place, Fields, Context], Source]] = MappingProxyType(
    {
        **dict.fromkeys(_TOPIC_KEYS, _topic_source),
        "files": _file_source,
        "table": _table_source,
        "archive": _archive_source,
    }
)
