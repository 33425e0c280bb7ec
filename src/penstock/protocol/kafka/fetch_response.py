"""A fetch response on its way out: bytes from memory between record batches from files.

The compiled encoder appends a `records` value as it is, so a range of a file takes its place among
the pieces. Here the pieces in between are joined, and each file range is left to the socket.
"""

from penstock.model.file_ranges import FileRange
from penstock.protocol.kafka.codec import encode_pieces
from penstock.protocol.kafka.messages.fetch import FetchResponse


def encode_fetch_response(response: FetchResponse, version: int) -> list[bytes | FileRange]:
    """The body in parts to be sent in order; those that are file ranges were not read."""
    parts: list[bytes | FileRange] = []
    run: list[bytes | memoryview | bytearray] = []
    for piece in encode_pieces(response, version):
        if isinstance(piece, (bytes, memoryview, bytearray)):
            run.append(piece)
        else:
            parts.append(b"".join(run))
            parts.append(piece)
            run = []
    if run:
        parts.append(b"".join(run))
    return parts
