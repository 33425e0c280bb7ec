"""Avro: parsed by fastavro, compared by the resolution rules of the Avro specification."""
