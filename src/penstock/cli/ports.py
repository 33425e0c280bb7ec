"""Whether a node could listen at an address, asked without leaving anything behind."""

import errno
import socket

from penstock.model.endpoint import Endpoint


def why_not(endpoint: Endpoint) -> str | None:
    """Why nobody can listen there, to stand inside a sentence; None if somebody can."""
    try:
        found = socket.getaddrinfo(
            endpoint.host or None, endpoint.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, kind, _, _, address in found[:1]:
            with socket.socket(family, kind) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return "the address is already in use"
        return (error.strerror or str(error)).lower()
    return None
