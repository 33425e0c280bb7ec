"""Where a door listens or is reached."""

from typing import NamedTuple


class Endpoint(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"
