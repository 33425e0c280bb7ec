"""Addresses of other nodes survive a restart, and a bad file costs nothing."""

from pathlib import Path

import pytest

from penstock.model.endpoint import Endpoint
from penstock.model.ids import BrokerId
from penstock.storage.address_book import read_addresses, write_addresses
from penstock.storage.file_system import RealFileSystem

DISK = RealFileSystem()


def test_addresses_are_read_back(tmp_path: Path) -> None:
    addresses = {BrokerId(2): Endpoint("a", 1), BrokerId(1): Endpoint("::1", 9095)}
    write_addresses(tmp_path / "peers", addresses, DISK)
    assert read_addresses(tmp_path / "peers", DISK) == addresses


def test_no_book_is_an_empty_one(tmp_path: Path) -> None:
    assert read_addresses(tmp_path / "peers", DISK) == {}


@pytest.mark.parametrize("data", [b"", b"[]", b'{"1": 2}', b'{"x": ["a", 1]}', b"\xff"])
def test_a_damaged_book_is_an_empty_one(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "peers").write_bytes(data)
    assert read_addresses(tmp_path / "peers", DISK) == {}
