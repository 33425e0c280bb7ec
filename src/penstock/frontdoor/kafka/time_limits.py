"""The time that a request leaves for a change of the metadata, as Kafka's controller takes it.

A change has to begin within that time. One that is left none is refused before anything is done;
one that began goes on to its end, and is answered when it is committed. The time ends only what
the answer waits for beyond that: that other brokers have heard of the change, that leaders exist.
"""

from penstock.model.errors import Reason, Refused


def time_to_wait(timeout_ms: int) -> float:
    """In seconds; raises Refused if nothing can begin in time."""
    if timeout_ms <= 0:
        raise Refused(Reason.REQUEST_TIMED_OUT, "The request leaves no time for it.")
    return timeout_ms / 1000
