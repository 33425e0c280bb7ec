"""The option `tracing`, of reads and writes."""

from importlib.util import find_spec

from penstock.spark.options.errors import OptionError
from penstock.spark.options.given import Given


def traced(given: Given) -> bool:
    """Raises OptionError on the driver if its Python lacks what tasks would need."""
    if not given.flag("tracing", False):
        return False
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.sdk") is None:
        raise OptionError(
            "The option tracing needs OpenTelemetry here and on the executors: "
            "pip install 'penstock-mq[otel]'."
        )
    return True
