"""Protobuf: parsed by proto-schema-parser, checked by protobuf itself, compared by wire types."""
