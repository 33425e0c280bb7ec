"""Makes Spark find Penstock: it looks for data sources in modules named `pyspark_*`."""

from penstock.spark.source import PenstockSource as DefaultSource

__all__ = ["DefaultSource"]
