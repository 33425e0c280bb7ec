"""Whether the demonstration can have Spark here, or the sentence that says why not."""

from penstock.pipelines.running.extras import ExtraMissing, require_spark
from penstock.spark.java import JavaNotFound, find_java


def why_no_spark() -> str | None:
    """None: there is all that the pipeline needs."""
    try:
        require_spark()
        find_java()
    except (ExtraMissing, JavaNotFound) as missing:
        return str(missing)
    return None
