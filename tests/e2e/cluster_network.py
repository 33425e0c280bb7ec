"""Nodes in network namespaces on one bridge, whose packets can be lost one way or both ways.

A packet is lost because its sender is given a wrong hardware address for the receiver: nothing
answers, nothing is refused, as when a cable is cut. The tests themselves stay outside and reach
every node, as clients of a cluster whose members can't reach each other would.
"""

import itertools
import os
import secrets
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Self

NOWHERE = "02:00:00:00:ff:ff"
HOST_PART = 254
DEVICE = "eth0"
COMMAND_TIMEOUT_S = 20


def why_not() -> str | None:
    """Why this machine can't make such a network; None if it can."""
    if shutil.which("ip") is None:
        return "the command ip (iproute2) is not installed"
    if os.geteuid() != 0:
        return "making network namespaces needs root"
    name = f"pstry{os.getpid()}"
    tried = _ip("netns", "add", name, check=False)
    if tried.returncode != 0:
        return f"network namespaces are refused here: {tried.stderr.strip()}"
    _ip("netns", "delete", name)
    return None


def _ip(*arguments: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
    outcome = subprocess.run(
        ["ip", *arguments], capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S
    )
    assert not check or outcome.returncode == 0, f"ip {' '.join(arguments)}: {outcome.stderr}"
    return outcome


def free_subnet() -> str:
    """One that nothing here has an address in: other tests on this machine make networks, too."""
    taken = _ip("-4", "-oneline", "address").stdout
    while True:
        subnet = f"10.{200 + secrets.randbelow(50)}.{secrets.randbelow(256)}"
        if f" {subnet}." not in taken:
            return subnet


class Network:
    """Namespaces for nodes 1..n; made by the `with` block and removed at its end."""

    def __init__(self, nodes: int) -> None:
        self.numbers = range(1, nodes + 1)
        self._id = secrets.token_hex(3)
        self._subnet = free_subnet()
        self._lost: set[tuple[int, int]] = set()

    def __enter__(self) -> Self:
        try:
            self._build()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._remove()

    def address(self, number: int) -> str:
        return f"{self._subnet}.{number}"

    def prefix(self, number: int) -> Sequence[str]:
        """What to put before a command that shall run on that node."""
        return ("ip", "netns", "exec", self._namespace(number))

    def cut(self, sender: int, receiver: int) -> None:
        """One way: the receiver's own packets still arrive."""
        self._point(sender, receiver, NOWHERE)
        self._lost.add((sender, receiver))

    def cut_off(self, number: int, others: Iterable[int]) -> None:
        for other in others:
            self.cut(number, other)
            self.cut(other, number)

    def heal(self) -> None:
        for sender, receiver in sorted(self._lost):
            self._point(sender, receiver, self._hardware_address(receiver))
        self._lost.clear()

    def _point(self, sender: int, receiver: int, hardware_address: str) -> None:
        self._inside(
            sender,
            *("neighbour", "replace", self.address(receiver), "lladdr", hardware_address),
            *("dev", DEVICE, "nud", "permanent"),
        )

    def _build(self) -> None:
        _ip("link", "add", self._bridge, "type", "bridge")
        _ip("address", "add", f"{self._subnet}.{HOST_PART}/24", "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")
        for number in self.numbers:
            self._build_node(number)
        for sender, receiver in itertools.permutations(self.numbers, 2):
            self._point(sender, receiver, self._hardware_address(receiver))

    def _build_node(self, number: int) -> None:
        outside = f"psv{self._id}-{number}"
        namespace = self._namespace(number)
        _ip("netns", "add", namespace)
        _ip(
            *("link", "add", outside, "type", "veth", "peer", "name", DEVICE),
            *("address", self._hardware_address(number), "netns", namespace),
        )
        _ip("link", "set", outside, "master", self._bridge, "up")
        self._inside(number, "address", "add", f"{self.address(number)}/24", "dev", DEVICE)
        self._inside(number, "link", "set", DEVICE, "up")
        self._inside(number, "link", "set", "lo", "up")

    def _inside(self, number: int, *arguments: str) -> None:
        _ip("-netns", self._namespace(number), *arguments)

    def _remove(self) -> None:
        """A namespace takes its end of the cable with it, and so the other end goes too."""
        for number in self.numbers:
            _ip("netns", "delete", self._namespace(number), check=False)
        _ip("link", "delete", self._bridge, check=False)

    @property
    def _bridge(self) -> str:
        return f"psb{self._id}"

    def _namespace(self, number: int) -> str:
        return f"penstock-{self._id}-{number}"

    def _hardware_address(self, number: int) -> str:
        return f"02:00:00:00:00:{number:02x}"
