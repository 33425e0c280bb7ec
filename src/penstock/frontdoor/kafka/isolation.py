"""Sends clients away from a broker that has lost its cluster.

A client asks whichever broker it is connected to where the leaders are. A broker that is cut off
answers, and is wrong, and its client would stay with it as long as it is cut off while the others
go on. So such a broker ends connections that have lasted a while, or asks their clients to start
over (KIP-1102); a client then tries the brokers it knows in turn. It serves new connections as well
as it can: it may be the last broker that is left.
"""

from penstock.frontdoor.kafka.api import Call
from penstock.frontdoor.kafka.errors import RefusedWith
from penstock.protocol.kafka.error_codes import ErrorCode

ISOLATED_S = 2.0
CONNECTION_S = 2.0


def check_contact(call: Call) -> None:
    """Refuses a call that another broker would answer better."""
    isolated_s = call.services.leaderships.isolated_s(call.now)
    if isolated_s >= ISOLATED_S and call.now - call.connection.opened_at >= CONNECTION_S:
        detail = f"this broker has had no controller for {isolated_s:.0f} s"
        raise RefusedWith(ErrorCode.REBOOTSTRAP_REQUIRED, detail)
