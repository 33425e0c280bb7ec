"""The composition root: the only place that builds real sockets, disks and clocks.

`parts.py` is what a node takes from the outside world, `node.py` one broker in a running event
loop, `process.py` a process around it with signals and logs, `service_manager.py` what it says to
systemd, `inspection.py` the logs of a stopped one.
"""

from penstock.server.inspection import check_log, missing_tails, repair_log, trust_logs
from penstock.server.node import Node
from penstock.server.parts import NodeParts, SystemClock
from penstock.server.process import check_settings, run

__all__ = [
    "Node",
    "NodeParts",
    "SystemClock",
    "check_log",
    "check_settings",
    "missing_tails",
    "repair_log",
    "run",
    "trust_logs",
]
