"""What `penstock doctor` looks at; each check says what it found, and what to do about it."""

import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from penstock import __version__
from penstock.cli.interpreter import is_optimised
from penstock.cli.ports import why_not
from penstock.config import Settings
from penstock.model.endpoint import Endpoint

GIB = 1 << 30
# Below the first, a node may stop writing within hours; below the second, at any moment.
FREE_BYTES_LOW = 10 * GIB
FREE_BYTES_MIN = 1 * GIB
SYNCS = 20
SYNC_BYTES = 4096
# Every acknowledgement waits for a sync: with more than this, clients notice, and with more than
# that, a node takes its disk for one that hangs now and then.
SYNC_MS_SLOW = 20.0
SYNC_MS_MAX = 500.0
# What a node asks the system for.
OPEN_FILES_WANTED = 65_536
OPEN_FILES_MIN = 1_024
PYTHON_MIN = (3, 11)
JAVA_MIN = 17
PROGRAM_TIMEOUT_S = 10.0
ANSWER_TIMEOUT_S = 2.0
# A clock that shows an earlier year was never set.
YEAR_MIN = 2024
PACKAGES = (
    "confluent-kafka",
    "cramjam",
    "crc32c",
    "grpcio",
    "httptools",
    "msgspec",
    "prometheus-client",
    "uvicorn",
    "uvloop",
)
# File systems that lose what they hold, and those over a network.
IN_MEMORY = frozenset({"tmpfs", "ramfs"})
REMOTE = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "fuse.sshfs", "9p", "afs", "ceph"})
OF_CONTAINER = frozenset({"overlay", "aufs"})


class State(StrEnum):
    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    name: str
    state: State
    text: str
    # What to do about it; nothing for what is well.
    advice: str = ""


Check = Callable[[], Iterator[Finding]]


def all_checks(settings: Settings) -> Sequence[Check]:
    """In the order in which they are shown: quick ones first."""
    return (
        python,
        packages,
        partial(ports, settings),
        partial(data_directory, settings.data_dir),
        partial(disk_space, settings.data_dir),
        partial(sync_speed, settings.data_dir),
        open_files,
        clock,
        java_and_spark,
    )


def python() -> Iterator[Finding]:
    found = ".".join(map(str, sys.version_info[:3]))
    wanted = ".".join(map(str, PYTHON_MIN))
    text = f"{found}, with Penstock {__version__}"
    if sys.version_info < PYTHON_MIN:
        yield Finding("Python", State.PROBLEM, text, f"Penstock needs Python {wanted} or newer.")
    elif not is_optimised():
        text = f"{text}; compiled without profiles"
        advice = "Use a Python from your system, or compile it with --enable-optimizations: "
        advice += "a node does up to half as much again with it."
        yield Finding("Python", State.WARNING, text, advice)
    else:
        yield Finding("Python", State.OK, text)


def packages() -> Iterator[Finding]:
    found = {name: _version(name) for name in PACKAGES}
    missing = [name for name, held in found.items() if held is None]
    text = ", ".join(f"{name} {held}" for name, held in found.items() if held is not None)
    if missing:
        advice = "Install Penstock again with pip."
        yield Finding("packages", State.PROBLEM, f"missing: {', '.join(missing)}", advice)
    else:
        yield Finding("packages", State.OK, text)


def ports(settings: Settings) -> Iterator[Finding]:
    doors = {"kafka": settings.kafka}
    doors.update(settings.other_doors())
    if settings.opens_peer_door():
        doors["peer"] = settings.peer
    is_served = False
    for door, endpoint in doors.items():
        name = f"port {endpoint.port}"
        reason = why_not(endpoint)
        if reason is None:
            yield Finding(name, State.OK, f"free for the {door} listener at {endpoint}")
        elif door == "kafka" and (cluster := _broker_at(endpoint)) is not None:
            is_served = True
            yield Finding(name, State.OK, f"a broker of cluster {cluster} serves at {endpoint}")
        elif door in settings.other_doors() and is_served:
            # A node that runs holds all of its ports.
            yield Finding(name, State.OK, f"in use for the {door} listener at {endpoint}")
        else:
            holder = _holder_of(endpoint.port)
            who = f", by {holder}" if holder else ""
            yield Finding(
                name,
                State.PROBLEM,
                f"no node can listen at {endpoint}: {reason}{who}",
                f"Stop that program, or choose another address with --{door} HOST:PORT.",
            )


def data_directory(directory: Path) -> Iterator[Finding]:
    place = _nearest(directory)
    if not place.is_dir():
        text = f"{place} is not a directory"
        yield Finding("data directory", State.PROBLEM, text, "Choose another with --data-dir.")
        return
    if not os.access(place, os.W_OK | os.X_OK):
        text = f"{place} can't be written by this user"
        yield Finding("data directory", State.PROBLEM, text, "Choose another with --data-dir.")
        return
    kind = _file_system(place)
    state, advice = _judge_file_system(kind)
    is_there = "" if directory.exists() else ", which will be created"
    yield Finding("data directory", state, f"{directory}{is_there}, on {kind or 'a disk'}", advice)


def disk_space(directory: Path) -> Iterator[Finding]:
    usage = shutil.disk_usage(_nearest(directory))
    text = f"{usage.free / GIB:.1f} GiB of {usage.total / GIB:.1f} GiB free"
    if usage.free < FREE_BYTES_MIN:
        advice = "Free some space: a node refuses writes when its disk is full."
        yield Finding("disk space", State.PROBLEM, text, advice)
    elif usage.free < FREE_BYTES_LOW:
        advice = "Watch it, or limit topics with retention.bytes and retention.ms."
        yield Finding("disk space", State.WARNING, text, advice)
    else:
        yield Finding("disk space", State.OK, text)


def sync_speed(directory: Path) -> Iterator[Finding]:
    place = _nearest(directory)
    try:
        times_ms = sorted(_sync_times_ms(place))
    except OSError as error:
        text = f"a file in {place} can't be written: {(error.strerror or str(error)).lower()}"
        yield Finding("sync", State.PROBLEM, text, "Choose another with --data-dir.")
        return
    median, worst = statistics.median(times_ms), times_ms[-1]
    text = f"takes {median:.2f} ms (median), {worst:.2f} ms at worst, in {len(times_ms)} tries"
    if worst > SYNC_MS_MAX:
        advice = "Use another disk: every acknowledgement waits for a sync, and this one hangs."
        yield Finding("sync", State.PROBLEM, text, advice)
    elif median > SYNC_MS_SLOW:
        advice = "Use a faster disk: every acknowledgement waits for a sync."
        yield Finding("sync", State.WARNING, text, advice)
    else:
        yield Finding("sync", State.OK, text)


def open_files() -> Iterator[Finding]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard >= OPEN_FILES_WANTED:
        yield Finding("open files", State.OK, f"{soft:,} now; a node can raise it")
        return
    state = State.PROBLEM if hard < OPEN_FILES_MIN else State.WARNING
    advice = f"Raise the limit to {OPEN_FILES_WANTED:,} (ulimit -n, or LimitNOFILE with systemd)."
    yield Finding("open files", state, f"at most {hard:,}", advice)


def clock() -> Iterator[Finding]:
    now = time.strftime("%Y-%m-%d %H:%M:%S %z")
    if time.gmtime().tm_year < YEAR_MIN:
        advice = "Set the clock: retention and record timestamps depend on it."
        yield Finding("clock", State.PROBLEM, f"{now} can't be right", advice)
        return
    said = _said(["timedatectl", "show", "--property=NTPSynchronized", "--value"])
    if said == "no":
        advice = "Turn on time synchronisation (timedatectl set-ntp true), especially in a cluster."
        yield Finding("clock", State.WARNING, f"{now}, not synchronised", advice)
    else:
        text = f"{now}, synchronised" if said == "yes" else now
        yield Finding("clock", State.OK, text)


def java_and_spark() -> Iterator[Finding]:
    """Only pipelines, archives and replays need them."""
    spark = _version("pyspark")
    if spark is None:
        advice = "Pipelines need it: pip install 'penstock-mq[spark]'."
        yield Finding("Spark", State.OK, "not installed", advice)
    else:
        yield Finding("Spark", State.OK, f"PySpark {spark}")
    state = State.OK if spark is None else State.WARNING
    program = _java()
    said = _said([program, "-version"]) if program else None
    advice = f"Spark needs Java {JAVA_MIN} or newer, on the PATH or in JAVA_HOME."
    if program is None or said is None:
        yield Finding("Java", state, "not found", advice)
        return
    found = re.search(r'version "(\d+)(?:\.(\d+))?', said)
    major = int(found[1]) if found else 0
    first_line = said.splitlines()[0]
    if major < JAVA_MIN:
        yield Finding("Java", state, first_line, advice)
    else:
        yield Finding("Java", State.OK, first_line)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else shutil.which("java")


def _said(command: list[str]) -> str | None:
    """What a program printed; None if it is not there, fails or takes too long."""
    try:
        outcome = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=PROGRAM_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return outcome.stdout.strip() if outcome.returncode == 0 else None


def _broker_at(endpoint: Endpoint) -> str | None:
    """The id of the cluster whose broker answers there."""
    from penstock.client.cluster import ClusterClient
    from penstock.client.errors import ClientError
    from penstock.client.kafka_connection import KafkaConnection

    try:
        with KafkaConnection(str(endpoint), timeout_s=ANSWER_TIMEOUT_S) as connection:
            return ClusterClient(connection).view().cluster_id
    except ClientError:
        return None


def _holder_of(port: int) -> str | None:
    """The process that listens there, as far as this user may see it, on Linux."""
    inodes = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
    if not inodes:
        return None
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if str(link.readlink()) in inodes:
                process = link.parent.parent
                return f"{(process / 'comm').read_text().strip()} (process {process.name})"
        except OSError:
            # It ended while we looked.
            continue
    return None


def _listening_inodes(port: int) -> Iterator[str]:
    listening, suffix = "0A", f":{port:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            columns = line.split()
            if columns[1].endswith(suffix) and columns[3] == listening:
                yield columns[9]


def _nearest(directory: Path) -> Path:
    """The directory itself, or the first one above it that is there."""
    place = directory.absolute()
    while not place.exists():
        place = place.parent
    return place


def _file_system(place: Path) -> str | None:
    """Its kind, as Linux names it; None where that can't be asked."""
    try:
        lines = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return None
    mounts = {_unescaped(one.split()[1]): one.split()[2] for one in lines}
    real = place.resolve()
    return next((mounts[str(one)] for one in (real, *real.parents) if str(one) in mounts), None)


def _unescaped(path: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), path)


def _judge_file_system(kind: str | None) -> tuple[State, str]:
    if kind in IN_MEMORY:
        return State.WARNING, "It is in memory: all data is lost when this machine restarts."
    if kind in REMOTE:
        return State.WARNING, "It is on a network, where syncs and locks can't always be trusted."
    if kind in OF_CONTAINER:
        return (
            State.WARNING,
            "It is inside a container, and may be deleted with it: mount a volume there.",
        )
    return State.OK, ""


def _sync_times_ms(place: Path) -> Iterator[float]:
    with tempfile.TemporaryFile(dir=place, prefix=".penstock-doctor-") as file:
        for _ in range(SYNCS):
            file.write(b"\0" * SYNC_BYTES)
            file.flush()
            began = time.perf_counter()
            getattr(os, "fdatasync", os.fsync)(file.fileno())
            yield (time.perf_counter() - began) * 1000
