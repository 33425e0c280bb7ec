"""The answer to a request that is refused as a whole, made from the schemas of its messages.

Where a response has a place for one code, that says it all. Otherwise each thing that the request
names gets the code: the arrays of such responses mirror the first array of their requests.
"""

from collections.abc import Iterable
from typing import Any

from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.schema import ARRAY, Field, Struct, schema_of, string

# What stands for a value that is not known, where that is not the schema's default.
_UNKNOWN = {
    "base_offset": -1,
    "committed_offset": -1,
    "high_watermark": -1,
    "low_watermark": -1,
    "error_message": None,
    "metadata": "",
    "node_id": -1,
    "port": -1,
    "producer_epoch": -1,
    "producer_id": -1,
    "records": b"",
}
# What a response repeats of its request beside the things that are named in arrays.
_ECHOED = ("member_id", "allow_replication_factor_change")
# What names a thing, in requests and in responses, with the names that stand for the same.
_NAMES = (
    ("partition_index", "partition", "index", "partition_id"),
    ("name", "topic"),
    ("topic_id",),
    ("group_id",),
    ("resource_type",),
    ("resource_name",),
    ("key",),
)


def refusal(response: type[Any], request: Any, version: int, code: ErrorCode) -> Any:
    """None where there is no place for the code: then the connection has to end."""
    if code is ErrorCode.REBOOTSTRAP_REQUIRED:
        # Most clients do not know it; that they are cut off says the same.
        return None
    fields = _fields(response, version)
    values = {name: getattr(request, name) for name in _ECHOED if hasattr(request, name)}
    return response(
        **{
            field.name: _value(field, request, values, fields, version, code)
            for field in fields.values()
        }
    )


def _fields(struct: type[Any], version: int) -> dict[str, Field]:
    return {field.name: field for field in schema_of(struct).fields if field.exists_in(version)}


def _value(
    field: Field,
    source: Any,
    known: dict[str, Any],
    fields: dict[str, Field],
    version: int,
    code: ErrorCode,
) -> Any:
    if field.name == "error_code":
        return code
    if field.name in known:
        return known[field.name]
    if field.kind is ARRAY:
        is_mirror = "error_code" not in fields and _is_struct(field.element)
        return _mirrored(field.element, source, version, code) if is_mirror else []
    if field.name in _UNKNOWN:
        return _UNKNOWN[field.name]
    return None if field.nullable_in(version) else field.default


def _mirrored(struct: type[Any], source: Any, version: int, code: ErrorCode) -> list[Any]:
    fields = _fields(struct, version)
    found = []
    for each in _first_array(source, version):
        known = _named(each, fields, version)
        if known:
            values = {
                field.name: _value(field, each, known, fields, version, code)
                for field in fields.values()
            }
            found.append(struct(**values))
    return found


def _first_array(source: Any, version: int) -> Iterable[Any]:
    if isinstance(source, Struct):
        for field in _fields(type(source), version).values():
            if field.kind is ARRAY:
                return getattr(source, field.name) or ()
    return ()


def _named(source: Any, fields: dict[str, Field], version: int) -> dict[str, Any]:
    """What names a thing in a request, by the names that it has in the response."""
    known = {}
    there = _fields(type(source), version) if isinstance(source, Struct) else {}
    for synonyms in _NAMES:
        name = next((each for each in synonyms if each in fields), None)
        if name is None:
            continue
        if there:
            same = next((each for each in synonyms if each in there), None)
            if same is not None:
                known[name] = getattr(source, same)
        elif isinstance(source, str) == (fields[name].kind is string):
            # An array of plain names or numbers.
            return {name: source}
    return known


def _is_struct(element: object) -> bool:
    return isinstance(element, type) and issubclass(element, Struct)
