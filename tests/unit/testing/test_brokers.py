"""A broker keeps its port: while it is down, nobody else is given it."""

import socket
import sys
from pathlib import Path

import pytest

from penstock.testing.brokers import ProcessBroker, ThreadBroker


@pytest.mark.skipif(sys.platform != "linux", reason="nowhere else can ports be held")
@pytest.mark.parametrize("kind", [ProcessBroker, ThreadBroker])
def test_a_broker_that_is_down_finds_its_port_free(
    kind: type[ProcessBroker | ThreadBroker], tmp_path: Path
) -> None:
    with kind(tmp_path / "data") as broker:
        bootstrap = broker.bootstrap
        broker.stop()
        host, port = bootstrap.split(":")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)))
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind((host, int(port)))
        assert broker.start() == bootstrap
        broker.create_topic("orders")
