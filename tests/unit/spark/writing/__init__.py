"""Unit tests of the write path."""
