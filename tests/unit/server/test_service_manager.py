"""The service manager hears of the start, the signs of life and the stop, if it wants to."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.server.service_manager import ServiceManager
from tests.waiting import until


@pytest.fixture(params=["path", "abstract"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "notify") if request.param == "path" else f"@penstock-test-{os.getpid()}"


@pytest.fixture
def manager_socket(address: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(f"\0{address[1:]}" if address.startswith("@") else address)
        sock.setblocking(False)
        yield sock


def heard(sock: socket.socket) -> list[str]:
    lines: list[str] = []
    while True:
        try:
            lines += sock.recv(4096).decode().splitlines()
        except BlockingIOError:
            return lines


async def test_ready_and_stopping_arrive(address: str, manager_socket: socket.socket) -> None:
    manager = ServiceManager.of({"NOTIFY_SOCKET": address})
    manager.ready("Serving.")
    assert heard(manager_socket) == ["READY=1", "STATUS=Serving."]
    manager.stopping()
    assert heard(manager_socket)[0] == "STOPPING=1"


async def test_signs_of_life_repeat(address: str, manager_socket: socket.socket) -> None:
    manager = ServiceManager.of({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "30000"})
    manager.ready("Serving.")
    signs: list[str] = []

    def have_come() -> bool:
        signs.extend(line for line in heard(manager_socket) if line == "WATCHDOG=1")
        return len(signs) >= 3

    await until(have_come)


@pytest.mark.parametrize(
    "watchdog", [{}, {"WATCHDOG_USEC": "0"}, {"WATCHDOG_USEC": "30", "WATCHDOG_PID": "1"}]
)
async def test_no_signs_of_life_unless_asked_for(
    address: str, manager_socket: socket.socket, watchdog: dict[str, str]
) -> None:
    ServiceManager.of({"NOTIFY_SOCKET": address, **watchdog}).ready("Serving.")
    assert "WATCHDOG=1" not in heard(manager_socket)


def test_children_do_not_inherit_the_variables() -> None:
    environment = {"NOTIFY_SOCKET": "@x", "WATCHDOG_USEC": "1", "WATCHDOG_PID": "1", "HOME": "/"}
    ServiceManager.of(environment)
    assert environment == {"HOME": "/"}


@pytest.mark.parametrize("missing", ["", "/nowhere/notify", "@nobody-listens", "/a\0b"])
async def test_nobody_listens(missing: str) -> None:
    manager = ServiceManager.of({"NOTIFY_SOCKET": missing})
    manager.ready("Serving.")
    manager.stopping()
