"""Whether this node can read schemas: their libraries are an extra."""

from importlib.util import find_spec
from typing import Final

# The modules of the extra `registry`.
LIBRARIES: Final = ("fastavro", "jsonschema", "proto_schema_parser")


def missing_libraries() -> list[str]:
    return [name for name in LIBRARIES if find_spec(name) is None]
