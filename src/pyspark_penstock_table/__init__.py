"""Makes Spark find the source of a pipeline's tables, in every session of a driver."""

from penstock.pipelines.lakes.table_source_stream import LakeTableSource as DefaultSource

__all__ = ["DefaultSource"]
