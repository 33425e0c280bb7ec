"""Makes Spark find the source by which a topic is archived, in every session of a driver."""

from penstock.pipelines.archives.source import ArchivingSource as DefaultSource

__all__ = ["DefaultSource"]
