"""What doors in a process of their own share: asking the broker, writing and reading records.

`broker.py` asks, `topics.py` remembers what topics are like, `publishing.py` brings records to
partitions, `writing.py` says which, `reading.py` brings them back, `queueing.py` leases messages of
queues, and `locks.py` takes and keeps locks.
"""
