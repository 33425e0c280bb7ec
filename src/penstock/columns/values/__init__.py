"""Avro and Protobuf values to Arrow columns, with a reason for each that can't be decoded."""
