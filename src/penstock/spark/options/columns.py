"""The columns that a read gives, named as Spark's Kafka source names them."""

from penstock.columns.layout import COLUMNS
from penstock.spark.options.errors import OptionError
from penstock.spark.options.given import Given
from penstock.spark.options.misspelt import nearest, nearest_hint

HEADERS = "headers"
COLUMNS_DEFAULT = tuple(column for column in COLUMNS if column != HEADERS)


def read_columns(given: Given) -> tuple[str, ...]:
    """Those that the option `columns` names, in its order, or all; headers only when asked for."""
    include_headers = given.flag("includeHeaders", False)
    text = given.text("columns")
    columns = COLUMNS_DEFAULT if text is None else _named(text)
    if include_headers and HEADERS not in columns:
        return (*columns, HEADERS)
    return columns


def _named(text: str) -> tuple[str, ...]:
    columns = tuple(_column(name.strip()) for name in text.split(",") if name.strip())
    if not columns:
        raise OptionError("The option columns does not name a column.")
    for column in columns:
        if columns.count(column) > 1:
            raise OptionError(f"The option columns names {column} twice.")
    return columns


def _column(name: str) -> str:
    for column in COLUMNS:
        if column.lower() == name.lower():
            return column
    hint = nearest_hint(nearest(name, COLUMNS))
    raise OptionError(f"The option columns names {name}, which is not a column{hint}.")
