"""`penstock up --nodes`: a whole cluster on one machine, one process for each node."""

import signal
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from penstock.cli.ports import why_not
from penstock.client.child_broker import ChildBroker
from penstock.client.errors import ClientError
from penstock.config import DOOR_PORTS, OFF, PORTS_PER_NODE, Settings, SettingsError
from penstock.model.endpoint import PORT_MAX, Endpoint

LOOK_S = 0.5
# What says who one node is can't be said of several.
_OF_ONE_NODE = ("node", "cluster", "join", "advertise", "advertise_peer", "rack")


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One node of the cluster to be run."""

    node: int
    doors: Mapping[str, Endpoint]
    data_dir: Path


def members(settings: Settings, count: int) -> list[Member]:
    """Nodes 1 to `count`: the first on the given or default ports, each next 100 above."""
    for name in _OF_ONE_NODE:
        if settings.is_explicit(name):
            raise SettingsError(
                f"Setting {name} from {settings.source(name)} is for one node, so it can't be "
                f"used with --nodes."
            )
    return [
        Member(
            node=node,
            doors={
                door: _shifted(settings, door, node - 1)
                for door in DOOR_PORTS
                if getattr(settings, door) is not None
            },
            data_dir=settings.data_dir / f"node-{node}",
        )
        for node in range(1, count + 1)
    ]


def _shifted(settings: Settings, door: str, steps: int) -> Endpoint:
    given: Endpoint = getattr(settings, door)
    port = given.port + steps * PORTS_PER_NODE
    if given.port == 0 or port > PORT_MAX:
        raise SettingsError(
            f"Setting {door} from {settings.source(door)} is '{given}', but with --nodes it must "
            f"have a port that leaves room for the other nodes' ports, such as {DOOR_PORTS[door]}."
        )
    return Endpoint(given.host, port)


def run_local_cluster(settings: Settings, count: int) -> int:
    """Runs the nodes until SIGTERM or Ctrl-C; returns the exit code of the process."""
    wanted = members(settings, count)
    _check_free(wanted)
    addresses = {one.node: str(one.doors["peer"]) for one in wanted}
    cluster = _LocalCluster([_child(settings, one, addresses) for one in wanted])
    return cluster.run(settings.data_dir)


def _check_free(wanted: list[Member]) -> None:
    """All doors before any node starts: one that is refused must not leave others' directories."""
    for member in wanted:
        for endpoint in member.doors.values():
            if reason := why_not(endpoint):
                raise ClientError(f"Node {member.node} can't listen on {endpoint}: {reason}.")


def _child(settings: Settings, member: Member, addresses: Mapping[int, str]) -> ChildBroker:
    # A secret on the command line would be seen by everybody on the machine.
    secret = settings.peer_secret
    return ChildBroker(
        member.data_dir,
        kafka=str(member.doors["kafka"]),
        grpc=str(member.doors.get("grpc", OFF)),
        http=str(member.doors.get("http", OFF)),
        node=member.node,
        peer=str(member.doors["peer"]),
        cluster=addresses,
        settings=settings.broker,
        flags=[
            *("--log-format", settings.log_format, "--log-level", settings.log_level),
            *("--scrub-hours", str(settings.scrub_hours)),
            *("--metrics", "on" if settings.metrics else "off"),
            *("--disk-timeout-ms", str(settings.disk_timeout_ms)),
            *(("--http-hosts", ",".join(settings.http_hosts)) if settings.http_hosts else ()),
        ],
        environment={} if secret is None else {"PENSTOCK_PEER_SECRET": secret},
        on_log=_prefixed(member.node),
    )


def _prefixed(node: int) -> Callable[[str], None]:
    def write(line: str) -> None:
        # One call, so that lines of several nodes do not mix.
        sys.stderr.write(f"node {node} | {line}\n")
        sys.stderr.flush()

    return write


class _LocalCluster:
    """The processes, from their start to their common end."""

    def __init__(self, children: list[ChildBroker]) -> None:
        self._children = children
        self._stop = threading.Event()

    def run(self, data_dir: Path) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        launched: list[ChildBroker] = []
        try:
            for child in self._children:
                child.launch()
                launched.append(child)
            self._await_ready(launched)
            if not self._stop.is_set():
                kafka = ",".join(child.bootstrap for child in launched)
                print(
                    f"penstock: all {len(launched)} nodes ready: kafka={kafka} data={data_dir}",
                    flush=True,
                )
            return self._watch(launched)
        finally:
            _stop_all(launched)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._stop.set()

    def _await_ready(self, launched: list[ChildBroker]) -> None:
        """Tells of each node when it is ready; they wait for each other, so all are looked at."""
        pending = list(launched)
        while pending and not self._stop.is_set():
            for child in [one for one in pending if one.wait_ready(LOOK_S / len(pending))]:
                pending.remove(child)
                if not child.bootstrap:
                    launched.remove(child)
                    child.kill()
                    raise ClientError(f"Node {child.node} did not start: {child.last_line}")
                print(child.ready_line, flush=True)

    def _watch(self, launched: list[ChildBroker]) -> int:
        """Waits for a signal; a node that ends by itself is reported, and the others go on."""
        while not self._stop.wait(LOOK_S):
            for child in [one for one in launched if one.exit_code is not None]:
                launched.remove(child)
                code = child.stop()
                how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
                print(
                    f"penstock: Node {child.node} ended {how}. Start it again with: "
                    f"{child.command_line}",
                    file=sys.stderr,
                    flush=True,
                )
            if not launched:
                return 1
        return 0


def _stop_all(launched: list[ChildBroker]) -> None:
    """All are asked first, so that they end together."""
    for child in launched:
        child.ask_to_stop()
    for child in launched:
        child.stop()
