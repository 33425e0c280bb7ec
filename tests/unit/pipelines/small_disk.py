"""A disk of a few megabytes that is really full, for tests of what is written to it."""

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

COMMAND_TIMEOUT_S = 20
PAGE = 4096
ATTEMPTS_MAX = 1_000


class SmallDisk:
    """A mounted file system in memory; a file on it takes the room that nobody may have."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # Beside the test's own files.
        self._ballast = path / "lost+found"

    @property
    def free_bytes(self) -> int:
        return shutil.disk_usage(self.path).free

    def fill(self, free_bytes: int = 0) -> None:
        """Leave that much room, in whole pages.

        Others may write meanwhile: they never find the disk emptier than it was, and what they take
        is taken from the ballast.
        """
        with self._ballast.open("ab") as file:
            for _ in range(ATTEMPTS_MAX):
                taken = os.fstat(file.fileno()).st_size
                more = (self.free_bytes - free_bytes) // PAGE * PAGE
                if more <= 0:
                    file.truncate(max(0, taken + more))
                    return
                try:
                    os.posix_fallocate(file.fileno(), taken, more)
                except OSError as failure:
                    if failure.errno != errno.ENOSPC:
                        raise
        raise AssertionError("others write and remove as fast as the disk is filled")

    def free(self) -> None:
        self._ballast.unlink(missing_ok=True)

    def enlarge(self, size: str) -> None:
        """Make room without removing anything."""
        remount = ["mount", "-o", f"remount,size={size}", str(self.path)]
        subprocess.run(remount, check=True, timeout=COMMAND_TIMEOUT_S)


@contextmanager
def small_disk(path: Path, size: str = "8m") -> Iterator[SmallDisk]:
    """Skips the test where nothing may be mounted."""
    if os.geteuid() != 0 or not shutil.which("mount"):
        pytest.skip("mounting a small file system needs root")
    path.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "penstock-test", str(path)]
    mounted = subprocess.run(mount, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S)
    if mounted.returncode != 0:
        pytest.skip(f"mount failed: {mounted.stderr.strip()}")
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True, timeout=COMMAND_TIMEOUT_S)
