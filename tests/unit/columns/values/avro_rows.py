"""Avro values for tests: written by fastavro, decoded by ours."""

import io
import json
from typing import Any

import fastavro
import pyarrow as pa

from penstock.columns.values.avro.decoder import AvroFormat
from penstock.columns.values.results import Decoded


def written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def decoded(schema: Any, values: list[bytes | None], header: int = 0) -> Decoded:
    wanted = AvroFormat(schema=json.dumps(schema), header=header)
    found = wanted.open().decode(pa.array(values, pa.binary()))
    found.values.validate(full=True)
    assert len(found.values) == len(found.errors) == len(values)
    return found


def record(**fields: Any) -> dict[str, Any]:
    """A record schema; fields in the order given."""
    named = [{"name": name, "type": kind} for name, kind in fields.items()]
    return {"type": "record", "name": "Sample", "fields": named}
