"""Avro's binary encoding: a schema becomes a small program, which walks over a whole column."""
