"""The schema registry's rules, as a state machine over the records of `_schemas`.

`state.py` is what is registered, changed by `apply` alone. `decisions.py` says which records a
request adds, and `answers.py` what a request is answered. `schemas.py` finds the format of a
schema, of which there are three: `avro`, `json_schema` and `protobuf`. Nothing here reaches a
clock, a disk or a network; frontdoor/remote/registry.py does that (decision 46).
"""
