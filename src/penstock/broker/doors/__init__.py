"""What doors in other processes may ask of the broker (decision 39).

`calls.py`, `lock_calls.py`, `member_calls.py` and `queue_calls.py` declare every call and its
answer; a door imports only those. `desk.py` takes calls and finds who answers them, here or on
another node. `streams.py`, `administration.py`, `copies.py`, `queues.py`, `queue_leaders.py`,
`members.py`, `locks.py` and `monitoring.py` answer, and `table.py` lists all methods. Nothing of it
is imported before a door is first used.
"""

from typing import Final

# The method under which desks of two nodes call each other.
PASSED_ON: Final = "doors.call"
