"""What `penstock doctor --bundle` collects for a bug report: no records, and no secrets.

Each part is asked for by itself. What can't be had is a sentence in the bundle, not a failure of
the command: a bundle is wanted most when something does not work.
"""

import http.client
import io
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from penstock import __version__
from penstock.cli.checks import Finding
from penstock.config import HIDDEN, Settings
from penstock.model.endpoint import LOOPBACK, Endpoint, is_wildcard
from penstock.model.errors import Explained

if TYPE_CHECKING:
    from penstock.client.admin import Admin

ANSWER_TIMEOUT_S = 5.0
# Of each log, the end; of what a node answers, the beginning.
LOG_BYTES_MAX = 5_000_000
ANSWER_BYTES_MAX = 20_000_000
GROUPS_MAX = 500
FILES_MAX = 10_000
JOURNAL_LINES = 20_000
UNIT = "penstock"
# Settings with such a word in their names are not shown, whoever defined them.
SECRET_WORDS = ("secret", "password", "token", "credential", "jaas")


class Entry(NamedTuple):
    name: str
    content: bytes


def collect(settings: Settings, findings: Sequence[Finding], logs: Sequence[Path]) -> list[Entry]:
    """Every part, with secrets that are known here blotted out wherever they are."""
    parts = [*_local(settings, findings), *_of_node(settings), *_of_cluster(settings)]
    parts += [*_logs(logs), *_journal()]
    return [Entry(name, _blotted(content, settings.peer_secret)) for name, content in parts]


def pack(entries: Sequence[Entry], folder: str) -> bytes:
    """A tar.gz whose files lie in one folder."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for entry in entries:
            member = tarfile.TarInfo(f"{folder}/{entry.name}")
            member.size, member.mtime, member.mode = len(entry.content), int(time.time()), 0o600
            archive.addfile(member, io.BytesIO(entry.content))
    return packed.getvalue()


def _local(settings: Settings, findings: Sequence[Finding]) -> Iterator[Entry]:
    about = {
        "penstock": __version__,
        "python": sys.version,
        "system": platform.platform(),
        "taken_at": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "packages": {one.name: one.version for one in distributions() if one.name},
    }
    yield _json("versions.json", about)
    yield _json("checks.json", [asdict(one) for one in findings])
    shown = [
        {"name": name, "value": _shown(name, value), "source": source}
        for name, value, source in settings.effective()
    ]
    yield _json("settings.json", shown)
    variables = sorted(name for name in os.environ if name.startswith("PENSTOCK_"))
    yield _json("variables.json", variables)
    yield _json("files.json", list(_files(settings.data_dir)))


def _shown(name: str, value: str) -> str:
    return HIDDEN if value and any(word in name.lower() for word in SECRET_WORDS) else value


def _files(directory: Path) -> Iterator[dict[str, object]]:
    """Names and sizes of the node's files; never what they hold."""
    count = 0
    for place, _, names in os.walk(directory):
        for name in sorted(names):
            path = Path(place, name)
            try:
                size = path.stat().st_size
            except OSError:
                continue
            yield {"file": str(path.relative_to(directory)), "bytes": size}
            count += 1
            if count == FILES_MAX:
                return


# The node and its cluster


def _of_node(settings: Settings) -> Iterator[Entry]:
    if settings.http is None or not settings.http.port:
        return
    endpoint = _reached(settings.http)
    for path in ("/metrics", "/health/ready", "/health/in-sync"):
        name = f"node{path.replace('/health/', '/health-')}.txt"
        yield Entry(name, _fetched(endpoint, path))


def _fetched(endpoint: Endpoint, path: str) -> bytes:
    connection = http.client.HTTPConnection(*endpoint, timeout=ANSWER_TIMEOUT_S)
    try:
        connection.request("GET", path)
        return connection.getresponse().read(ANSWER_BYTES_MAX)
    except (OSError, http.client.HTTPException) as error:
        return f"{endpoint} does not answer: {error}\n".encode()
    finally:
        connection.close()


def _of_cluster(settings: Settings) -> Iterator[Entry]:
    """Topics, groups and queues as any client sees them."""
    if not settings.kafka.port:
        return
    bootstrap = str(_reached(settings.kafka))
    for name, ask in (
        ("cluster.json", _status),
        ("metadata.json", _metadata),
        ("groups.json", _groups),
        ("queues.json", _queues),
    ):
        yield _asked(name, ask, bootstrap)


def _asked(name: str, ask: Callable[[str], object], bootstrap: str) -> Entry:
    try:
        return _json(name, ask(bootstrap))
    except Explained as error:
        return _json(name, {"error": str(error)})


def _status(bootstrap: str) -> object:
    from penstock.cli.cluster_status import status_of
    from penstock.client.cluster import ClusterClient
    from penstock.client.kafka_connection import KafkaConnection

    with KafkaConnection(bootstrap, timeout_s=ANSWER_TIMEOUT_S) as connection:
        client = ClusterClient(connection)
        return status_of(client.view(), client.moving())


def _metadata(bootstrap: str) -> object:
    from penstock.client.admin import Admin
    from penstock.client.backup import encode, take

    with Admin(bootstrap, timeout_s=ANSWER_TIMEOUT_S) as admin:
        return json.loads(encode(take(admin)))


def _groups(bootstrap: str) -> object:
    """The story of each group: who is in it, what everybody has and shall have, how far it is."""
    from penstock.client.admin import Admin

    with Admin(bootstrap, timeout_s=ANSWER_TIMEOUT_S) as admin:
        names = [one.group for one in admin.groups.overview()]
        described = [_group(admin, name) for name in names[:GROUPS_MAX]]
    return {"groups": described, "left_out": max(0, len(names) - GROUPS_MAX)}


def _group(admin: "Admin", name: str) -> object:
    try:
        return asdict(admin.groups.describe(name))
    except Explained as error:
        return {"group": name, "error": str(error)}


def _queues(bootstrap: str) -> object:
    from penstock.client.admin import Admin

    with Admin(bootstrap, timeout_s=ANSWER_TIMEOUT_S) as admin:
        return [asdict(one) for one in admin.queues.all()[:GROUPS_MAX]]


def _reached(endpoint: Endpoint) -> Endpoint:
    return Endpoint(LOOPBACK, endpoint.port) if is_wildcard(endpoint.host) else endpoint


# Logs


def _logs(files: Sequence[Path]) -> Iterator[Entry]:
    for number, file in enumerate(files, start=1):
        name = f"logs/{number}-{file.name}"
        try:
            with file.open("rb") as source:
                source.seek(max(0, os.fstat(source.fileno()).st_size - LOG_BYTES_MAX))
                yield Entry(name, source.read(LOG_BYTES_MAX))
        except OSError as error:
            yield Entry(name, f"{file} can't be read: {error.strerror}\n".encode())


def _journal() -> Iterator[Entry]:
    """What systemd keeps of the service, where there is one."""
    program = shutil.which("journalctl")
    if program is None:
        return
    words = [program, "--unit", UNIT, "--lines", str(JOURNAL_LINES), "--no-pager", "--quiet"]
    try:
        said = subprocess.run(words, capture_output=True, timeout=ANSWER_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return
    if said.returncode == 0 and said.stdout.strip():
        yield Entry("logs/journal.txt", said.stdout[-LOG_BYTES_MAX:])


def _json(name: str, content: object) -> Entry:
    return Entry(name, json.dumps(content, indent=2, default=str).encode() + b"\n")


def _blotted(content: bytes, secret: str | None) -> bytes:
    return content.replace(secret.encode(), HIDDEN.encode()) if secret else content
