"""A disk that can be made full and freed again, for one node of a cluster."""

import os
import resource
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from tests.e2e.cluster_nodes import ClusterNode

SIZE_BYTES = 256 << 20
CHUNK = bytes(1 << 20)
COMMAND_TIMEOUT_S = 20


class Disk(Protocol):
    def fill(self) -> None: ...

    def free(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


def small_disk(node: ClusterNode) -> Disk:
    """Put under a node before its first start: a real one if we may mount, else a limit."""
    if os.geteuid() == 0 and can_mount(node.data_dir):
        return MountedDisk(node)
    return LimitedDisk(node)


def can_mount(path: Path) -> bool:
    path.mkdir(parents=True, exist_ok=True)
    if mount(path).returncode != 0:
        return False
    unmount(path)
    return True


def mount(path: Path) -> "subprocess.CompletedProcess[bytes]":
    arguments = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_BYTES}", "tmpfs", str(path)]
    return subprocess.run(arguments, capture_output=True, timeout=COMMAND_TIMEOUT_S)


def unmount(path: Path) -> None:
    # Lazily: the node may have died with files open, and its end is not ours to wait for.
    subprocess.run(["umount", "-l", str(path)], check=True, timeout=COMMAND_TIMEOUT_S)


class MountedDisk:
    """A file system in memory, with a file on it that takes all the room there is."""

    def __init__(self, node: ClusterNode) -> None:
        self._path = node.data_dir
        # Beside the node's own files, under a name that it does not mind.
        self._ballast = node.data_dir / "lost+found"

    def __enter__(self) -> Self:
        outcome = mount(self._path)
        assert outcome.returncode == 0, outcome.stderr.decode()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        unmount(self._path)

    def fill(self) -> None:
        with self._ballast.open("wb", buffering=0) as file:
            for chunk in (CHUNK, CHUNK[:4096]):
                try:
                    while file.write(chunk) == len(chunk):
                        pass
                except OSError:
                    continue

    def free(self) -> None:
        self._ballast.unlink()


class LimitedDisk:
    """No file of the process may become larger than its largest log already is."""

    def __init__(self, node: ClusterNode) -> None:
        self._node = node

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """The limit ends with the process."""

    def fill(self) -> None:
        sizes = [path.stat().st_size for path in (self._node.data_dir / "topics").rglob("*.log")]
        self._limit(max(sizes))

    def free(self) -> None:
        self._limit(resource.RLIM_INFINITY)

    def _limit(self, size: int) -> None:
        _, hard = resource.prlimit(self._node.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self._node.pid, resource.RLIMIT_FSIZE, (size, hard))
