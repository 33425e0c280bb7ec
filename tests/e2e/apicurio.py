"""Apicurio Registry, which serves Confluent's API too, as a process on loopback.

It comes from Maven Central, once, into the folder `build`. It takes 140 MB, so only the soak and
the benchmarks use it, never `make test`. It keeps everything in memory.
"""

import fcntl
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.e2e.ports import free_port
from tests.e2e.processes import run_tool
from tests.waiting import wait_until

VERSION = "2.6.13.Final"
BUILD = Path(__file__).resolve().parents[2] / "build" / "apicurio"
INSTALL_TIMEOUT_S = 600
START_S = 120.0
NEEDED = ("mvn", "java")


def missing() -> list[str]:
    """What must be installed before `apicurio` can work."""
    return [tool for tool in NEEDED if shutil.which(tool) is None]


@contextmanager
def apicurio() -> Iterator[str]:
    """The address of its paths for Confluent's clients, while it runs."""
    folder = _install()
    (runner,) = folder.glob("*-runner.jar")
    port = free_port()
    command = ["java", "-Xmx400m", "-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={port}"]
    process = subprocess.Popen(
        [*command, "-jar", str(runner)], cwd=folder, stdout=subprocess.DEVNULL
    )
    base = f"http://127.0.0.1:{port}/apis/ccompat/v7"

    def is_ready() -> bool:
        assert process.poll() is None
        try:
            return httpx.get(f"{base}/subjects").status_code == 200
        except httpx.TransportError:
            return False

    try:
        wait_until("Apicurio answers", is_ready, timeout_s=START_S)
        yield base
    finally:
        process.kill()
        process.wait()


def _install() -> Path:
    """The folder with all its jars, made once for all processes."""
    BUILD.mkdir(parents=True, exist_ok=True)
    folder = BUILD / VERSION
    with (BUILD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            artifact = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
            goal = ["dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={BUILD}"]
            run_tool(["mvn", "-q", "-B", *goal], timeout_s=INSTALL_TIMEOUT_S)
            unpacked = BUILD / "unpacked"
            shutil.rmtree(unpacked, ignore_errors=True)
            (archive,) = BUILD.glob(f"*{VERSION}*.tar.gz")
            shutil.unpack_archive(archive, unpacked)
            archive.unlink()
            unpacked.rename(folder)
    return folder
