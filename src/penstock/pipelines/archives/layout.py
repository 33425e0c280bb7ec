"""The columns of an archive: a topic's own, and the date where files are kept by date as well."""

import pyarrow as pa
import pyarrow.compute as pc

from penstock.columns.arrow_layout import arrow_schema
from penstock.columns.layout import COLUMNS

DATE = "date"


def archive_schema(*, is_by_date: bool) -> pa.Schema:
    schema = arrow_schema(COLUMNS)
    return schema.append(pa.field(DATE, pa.date32())) if is_by_date else schema


def with_date(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows with the date of their timestamps, in UTC."""
    dates = pc.cast(batch.column("timestamp"), pa.date32())
    return pa.RecordBatch.from_arrays(
        [*batch.columns, dates], schema=archive_schema(is_by_date=True)
    )
