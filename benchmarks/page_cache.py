"""Makes the measurement independent of who uses a page of memory first.

On a virtual machine the first use of a page costs several times more than later ones, because the
host has to find it. The broker writes to the page cache, so it would pay for all of them; a broker
that has run for a while does not.
"""

from pathlib import Path

CHUNK = bytes(1 << 20)


def warm(folder: Path, size: int) -> None:
    """Let the page cache take and give back that much memory; nothing has to reach the disk."""
    path = folder / "warm"
    with path.open("wb") as file:
        for _ in range(size // len(CHUNK)):
            file.write(CHUNK)
    path.unlink()
