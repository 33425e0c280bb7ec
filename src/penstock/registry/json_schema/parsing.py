"""Reads a JSON Schema: checks it against its draft, and finds what its references stand for."""

from collections.abc import Iterator, Sequence
from typing import Any, Final
from urllib.parse import unquote, urldefrag, urljoin

from jsonschema import validators
from jsonschema.exceptions import SchemaError

from penstock.registry.errors import invalid_schema
from penstock.registry.json_schema.comparing import faults_reading
from penstock.registry.json_text import compact, compact_sorted, read_json
from penstock.registry.schemas import Fault, Used

# For a schema that does not say which draft it follows.
DRAFT: Final = validators.validator_for({"$schema": "http://json-schema.org/draft-07/schema#"})
# What holds values, not schemas.
_PLAIN: Final = frozenset({"const", "enum", "default", "examples"})


class JsonSchema:
    __slots__ = ("document", "normalized", "resolver", "text")

    def __init__(self, document: Any, resolver: "Resolver") -> None:
        self.document = document
        self.resolver = resolver
        self.text = compact(document)
        self.normalized = compact_sorted(document)

    def faults_reading(self, old: "JsonSchema") -> list[Fault]:
        return faults_reading(self.document, self.resolver, old.document, old.resolver)

    def formatted(self, form: str) -> str:
        return self.text


class Resolver:
    """Finds what a `$ref` stands for, in the schema itself and in those that it uses."""

    def __init__(self, document: Any, used: Sequence[Used]) -> None:
        self._document = document
        self._base = _id_of(document)
        self._documents: dict[str, Any] = {}
        for each in used:
            found = read_json(each.text)
            self._documents[each.name] = found
            self._documents.setdefault(_id_of(found), found)
            self._documents.setdefault(urljoin(self._base, each.name), found)
        self._documents[""] = document
        self._documents[self._base] = document
        self._anchors = {
            (base, anchor): found
            for base, whole in self._documents.items()
            for anchor, found in _anchors(whole)
        }

    def find(self, reference: str, document: Any = None) -> tuple[Any, Any] | None:
        """The schema and the document that it is in; None if there is none."""
        address, fragment = urldefrag(reference)
        if not address:
            whole = self._document if document is None else document
        else:
            whole = self._documents.get(address)
            if whole is None:
                whole = self._documents.get(urljoin(self._base, address))
            if whole is None:
                return None
        if not fragment or fragment.startswith("/"):
            found = _pointed(whole, unquote(fragment))
            return None if found is None else (found, whole)
        for (_, anchor), found in self._anchors.items():
            if anchor == fragment:
                return found, whole
        return None


def parse(text: str, used: Sequence[Used]) -> JsonSchema:
    document = read_json(text)
    if not isinstance(document, dict | bool):
        raise invalid_schema("a JSON Schema is an object, or true or false.")
    validator = validators.validator_for(document, default=DRAFT)
    try:
        validator.check_schema(document)
    except SchemaError as bad:
        place = "/".join(map(str, bad.absolute_path))
        raise invalid_schema(f"at '/{place}': {bad.message[:500]}.") from None
    resolver = Resolver(document, used)
    for reference in _references(document):
        # The drafts themselves are known to everybody.
        if not reference.startswith(_DRAFTS) and resolver.find(reference) is None:
            raise invalid_schema(f"the reference '{reference[:200]}' is not known.")
    return JsonSchema(document, resolver)


_DRAFTS: Final = ("http://json-schema.org/", "https://json-schema.org/")


def _id_of(document: Any) -> str:
    found = document.get("$id", document.get("id")) if isinstance(document, dict) else None
    return urldefrag(found)[0] if isinstance(found, str) else ""


def _pointed(document: Any, pointer: str) -> Any:
    found = document
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict) and key in found:
            found = found[key]
        elif isinstance(found, list) and key.isdecimal() and int(key) < len(found):
            found = found[int(key)]
        else:
            return None
    return found


def _walk(document: Any) -> Iterator[dict[str, Any]]:
    """Every object that may be a schema."""
    waiting = [document]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            yield each
            waiting += [value for key, value in each.items() if key not in _PLAIN]
        elif isinstance(each, list):
            waiting += each


def _references(document: Any) -> Iterator[str]:
    for each in _walk(document):
        found = each.get("$ref")
        if isinstance(found, str):
            yield found


def _anchors(document: Any) -> Iterator[tuple[str, Any]]:
    for each in _walk(document):
        for key in ("$anchor", "$id", "id"):
            found = each.get(key)
            if isinstance(found, str) and (key == "$anchor" or found.startswith("#")):
                yield found.removeprefix("#"), each
