"""An HTTP server that reads a request and answers, with no broker behind it.

    python -m benchmarks.bare_http

It prints its port first. What a busy HTTP door costs others beyond this server is the door's own:
the rest is what any busy program costs them on the same machine.
"""

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import uvicorn
import uvloop

# As long as the answer to one record.
BODY = b'{"records":[{"partition":0,"offset":1000000,"timestamp":1700000000000}]}'
HEADERS = [
    (b"content-type", b"application/json"),
    (b"content-length", str(len(BODY)).encode()),
]


async def answer(
    scope: dict[str, Any],
    receive: Callable[[], Awaitable[dict[str, Any]]],
    send: Callable[[dict[str, Any]], Awaitable[None]],
) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    await send({"type": "http.response.body", "body": BODY})


async def serve() -> None:
    """Until the process that started it is gone, and with it the other end of its stdin."""
    config = uvicorn.Config(answer, log_level="error", access_log=False, lifespan="off")
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), end, server)
        await server.serve([listener])


def end(server: uvicorn.Server) -> None:
    server.should_exit = True
    asyncio.get_running_loop().remove_reader(sys.stdin.fileno())


if __name__ == "__main__":
    uvloop.run(serve())
