"""Unit tests of the Spark data source: no JVM, no broker."""
