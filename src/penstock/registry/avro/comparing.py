"""Whether a reader can read what a writer wrote: the schema resolution of the Avro specification.

The kinds of faults are those of Avro's own SchemaCompatibility.
"""

from typing import Final

from penstock.registry.avro.nodes import Field, Node
from penstock.registry.schemas import Fault

# What a reader's type takes beside itself.
_PROMOTIONS: Final = {
    "long": ("int",),
    "float": ("int", "long"),
    "double": ("int", "long", "float"),
    "bytes": ("string",),
    "string": ("bytes",),
}


def faults_reading(reader: Node, writer: Node) -> list[Fault]:
    return Comparison().compare(reader, writer, "")


class Comparison:
    def __init__(self) -> None:
        # Pairs of named types that are compared already, or are being compared: a recursive type
        # meets itself.
        self._done: dict[tuple[int, int], bool] = {}

    def compare(self, reader: Node, writer: Node, path: str) -> list[Fault]:
        if writer.kind == "union" and reader.kind != "union":
            return [
                fault for branch in writer.branches for fault in self.compare(reader, branch, path)
            ]
        if reader.kind == "union":
            return self._compare_to_union(reader, writer, path)
        if reader.kind != writer.kind:
            if writer.kind in _PROMOTIONS.get(reader.kind, ()):
                return []
            return [_type_mismatch(reader, writer, path)]
        if reader.inner is not None:
            key = "items" if reader.kind == "array" else "values"
            return self.compare(reader.inner, writer.content, f"{path}/{key}")
        if reader.name:
            return self._compare_named(reader, writer, path)
        return []

    def _compare_to_union(self, reader: Node, writer: Node, path: str) -> list[Fault]:
        written = writer.branches if writer.kind == "union" else [writer]
        faults = []
        for index, branch in enumerate(written):
            if not any(self._fits(each, branch) for each in reader.branches):
                place = f"{path}/{index}" if writer.kind == "union" else path
                what = f"reader union lacking writer type: {branch.kind.upper()}"
                words = (
                    f"The new schema is missing a type inside a union field at path {_at(place)}"
                )
                faults.append(Fault("MISSING_UNION_BRANCH", words, what))
        return faults

    def _fits(self, reader: Node, writer: Node) -> bool:
        return not self.compare(reader, writer, "")

    def _compare_named(self, reader: Node, writer: Node, path: str) -> list[Fault]:
        pair = (id(reader), id(writer))
        if pair in self._done:
            # Its faults are reported where it was met first.
            return [] if self._done[pair] else [_type_mismatch(reader, writer, path)]
        self._done[pair] = True
        faults = self._name_faults(reader, writer, path)
        if reader.kind == "fixed":
            if reader.size != writer.size:
                words = f"The size of the fixed type at path {_at(f'{path}/size')} has changed"
                detail = f"expected: {writer.size}, found: {reader.size}"
                faults.append(Fault("FIXED_SIZE_MISMATCH", words, detail))
        elif reader.kind == "enum":
            missing = [each for each in writer.symbols if each not in set(reader.symbols)]
            if missing and reader.default_symbol is None:
                words = f"The new schema is missing enum symbols at path {_at(f'{path}/symbols')}"
                faults.append(Fault("MISSING_ENUM_SYMBOLS", words, f"[{', '.join(missing)}]"))
        else:
            faults += self._compare_fields(reader, writer, path)
        self._done[pair] = not faults
        return faults

    @staticmethod
    def _name_faults(reader: Node, writer: Node, path: str) -> list[Fault]:
        if reader.short_name == writer.short_name or writer.name in reader.aliases:
            return []
        words = f"The name of the schema has changed at path {_at(f'{path}/name')}"
        return [Fault("NAME_MISMATCH", words, f"expected: {writer.name}")]

    def _compare_fields(self, reader: Node, writer: Node, path: str) -> list[Fault]:
        written = {each.name: each for each in writer.fields}
        faults = []
        for index, field in enumerate(reader.fields):
            place = f"{path}/fields/{index}"
            found = _writers_field(field, written)
            if found is not None:
                faults += self.compare(field.kind, found.kind, f"{place}/type")
            elif not field.has_default:
                words = (
                    f'The field "{field.name}" at path {_at(place)} in the new schema has no '
                    "default value and is missing in the old schema"
                )
                faults.append(Fault("READER_FIELD_MISSING_DEFAULT_VALUE", words, field.name))
        return faults


def _writers_field(field: Field, written: dict[str, Field]) -> Field | None:
    for name in (field.name, *field.aliases):
        if name in written:
            return written[name]
    return None


def _type_mismatch(reader: Node, writer: Node, path: str) -> Fault:
    words = f"The type at path {_at(path)} in the new schema does not match the old schema"
    detail = (
        f"reader type: {reader.kind.upper()} not compatible with writer type: {writer.kind.upper()}"
    )
    return Fault("TYPE_MISMATCH", words, detail)


def _at(path: str) -> str:
    return f'"{path or "/"}"'
