"""Which offsets a query reads and how they are shared among tasks: pure functions on answers that
somebody else fetched.
"""
