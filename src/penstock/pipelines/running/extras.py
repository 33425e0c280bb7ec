"""Says in one sentence what to install where a part of Penstock is missing."""

from importlib.util import find_spec

from penstock.model.errors import Explained

NEEDED = ("pyspark", "pyarrow")


class ExtraMissing(Explained):
    """An extra is not installed; the text is the command that installs it."""


def require_spark() -> None:
    """Raises ExtraMissing where Spark or what it needs from us is not installed."""
    if any(find_spec(package) is None for package in NEEDED):
        raise ExtraMissing("This needs Spark: pip install 'penstock-mq[spark]'.")
