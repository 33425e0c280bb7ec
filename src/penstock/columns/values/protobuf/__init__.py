"""Protobuf messages: parsed by google.protobuf, then turned into Arrow one field at a time."""
