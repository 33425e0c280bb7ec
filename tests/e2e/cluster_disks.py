"""Disks of single nodes of a cluster that can be made full, made to hang, or lose their power."""

import fcntl
import os
import resource
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from tests.e2e.cluster_nodes import ClusterNode

SIZE_BYTES = 256 << 20
CHUNK = bytes(1 << 20)
COMMAND_TIMEOUT_S = 20
# However a test ends, nothing stays frozen for longer: what touches a frozen disk can't be killed.
FROZEN_S_MAX = 90
# It thaws when its input ends, and so when the tests end, however they do.
FREEZER = f'fsfreeze --freeze "$0" && echo frozen && read -r -t {FROZEN_S_MAX} _; fsfreeze -u "$0"'
# Of ext4 (and XFS): the file system stops as it is, without writing its journal or anything else.
SHUT_DOWN = 2 << 30 | 4 << 16 | ord("X") << 8 | 125
WITHOUT_FLUSHING = struct.pack("I", 2)
FREEZER_TOOLS = {"mkfs.ext4": "e2fsprogs", "fsfreeze": "util-linux", "mount": "mount"}


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


def why_nothing_freezes() -> str | None:
    """Why this machine can't freeze a disk; None if it can."""
    for tool, package in FREEZER_TOOLS.items():
        if shutil.which(tool) is None:
            return f"the command {tool} ({package}) is not installed"
    if os.geteuid() != 0:
        return "mounting a file system needs root"
    with tempfile.TemporaryDirectory() as folder:
        disk = ImageDisk(Path(folder) / "disk")
        try:
            with disk, disk.frozen():
                return None
        except AssertionError as refused:
            return f"a file system in a file can't be mounted and frozen here: {refused}"


class ImageDisk:
    """A file system in a file. While it is frozen, writes to it hang without an error; when its
    power goes, all that was not synced goes with it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._image = path.with_name(f"{path.name}.ext4")

    def __enter__(self) -> Self:
        self._path.mkdir(parents=True, exist_ok=True)
        with self._image.open("wb") as image:
            image.truncate(SIZE_BYTES)
        _run("mkfs.ext4", "-q", "-F", str(self._image))
        self._mount()
        return self

    def _mount(self) -> None:
        _run("mount", "-o", "loop", str(self._image), str(self._path))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        unmount(self._path)

    def lose_power(self) -> None:
        """From now on nothing is written, and what was not synced is lost."""
        directory = os.open(self._path, os.O_RDONLY)
        try:
            fcntl.ioctl(directory, SHUT_DOWN, WITHOUT_FLUSHING)
        finally:
            os.close(directory)

    def get_power(self) -> None:
        """After its node has ended: what the disk kept is there again."""
        _run("umount", str(self._path))
        self._mount()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Thaws at the end of the block: before anybody ends a node that hangs."""
        freezer = subprocess.Popen(
            ["bash", "-c", FREEZER, str(self._path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert freezer.stdout is not None
            assert freezer.stdout.readline() == "frozen\n", "the disk did not freeze"
            yield
        finally:
            freezer.communicate("thaw\n", timeout=COMMAND_TIMEOUT_S)


def _run(*arguments: str) -> None:
    outcome = subprocess.run(arguments, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S)
    assert outcome.returncode == 0, f"{arguments[0]}: {outcome.stderr.strip()}"
