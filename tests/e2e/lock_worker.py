"""Takes a lock again and again, as a process of its own: `python -m tests.e2e.lock_worker HTTP
JOURNAL`. It writes what it knows to the journal, a line at a time; the tests compare the lines of
all workers.

`enter` comes after the lock was granted. `held` names a time at which the worker counted itself as
the holder. `lost` says that it noticed that it is not any more.
"""

import json
import os
import sys
import time

import penstock
from penstock.client.lock import Lock, now_s

LOCK = "counter"
LEASE_S = 2.0
ROUNDS = 20
PAUSE_S = 0.02


def main(http: str, journal: str) -> None:
    lines = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(event: str, lock: Lock, at: float) -> None:
        line = {"event": event, "worker": os.getpid(), "token": lock.fencing_token, "at": at}
        os.write(lines, json.dumps(line).encode() + b"\n")

    while True:
        lock = penstock.lock(LOCK, http=http, lease_s=LEASE_S)
        try:
            with lock:
                note("enter", lock, now_s())
                for _ in range(ROUNDS):
                    at = now_s()
                    if lock.is_held:
                        note("held", lock, at)
                    time.sleep(PAUSE_S)
        except penstock.LockLost:
            note("lost", lock, now_s())


if __name__ == "__main__":
    main(*sys.argv[1:])
