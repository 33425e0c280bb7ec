"""The fewest options that a read and a write need."""

from penstock.spark.options.reading import ReadOptions, read_options
from penstock.spark.options.writing import WriteOptions, write_options

BOOTSTRAP = {"kafka.bootstrap.servers": "localhost:9092"}


def read(*, streaming: bool = False, subscribe: str | None = "orders", **named: str) -> ReadOptions:
    chosen = {} if subscribe is None else {"subscribe": subscribe}
    return read_options({**BOOTSTRAP, **chosen, **named}, streaming=streaming)


def read_with(options: dict[str, str], *, streaming: bool = False) -> ReadOptions:
    """For names that are not Python names."""
    return read_options({**BOOTSTRAP, "subscribe": "orders", **options}, streaming=streaming)


def write_with(options: dict[str, str]) -> WriteOptions:
    return write_options({**BOOTSTRAP, **options}, streaming=False)
