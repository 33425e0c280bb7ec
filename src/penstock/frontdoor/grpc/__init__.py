"""The gRPC door: `penstock_v1.proto` is its interface, `methods.py` says what answers each call.

`door.py` builds it. `relay.py` brings connections to gRPC's library, `statuses.py` says how errors
look, and `translation.py` turns messages into the broker's words and back.
"""
