"""`penstock log trust`: shows what would be given up, asks, and notes the answer with the log."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from penstock.cli.main import cli
from penstock.model.ids import UNKNOWN_END, BrokerId, LogEnd
from penstock.storage.data_directory import DataDirectory
from penstock.storage.file_system import RealFileSystem
from penstock.storage.log import Doubt
from tests.unit.storage.logs import Bench, checkpoint, fill

TOPIC = "0" * 31 + "7"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two logs of five records each; one of them waits for what it lacks."""
    disk = RealFileSystem()
    directory = DataDirectory.open(tmp_path / "data", node=BrokerId(1), file_system=disk)
    for number, needed in enumerate((LogEnd(1, 8), LogEnd())):
        path = directory.path / "topics" / TOPIC / str(number)
        log = Bench(disk, directory=path).create()
        fill(log, 5)
        checkpoint(log)
        log.set_doubt(Doubt(lost=needed, needed=needed))
        log.close()
    Bench(disk, directory=directory.metadata_directory).create().close()
    directory.close()
    return directory.path


def trust(data: Path, *arguments: str, answer: str = "") -> Result:
    return CliRunner().invoke(cli, ["log", "trust", str(data), *arguments], input=answer)


def doubt(data: Path, number: int = 0) -> Doubt:
    path = data / "topics" / TOPIC / str(number)
    return Bench(RealFileSystem(), directory=path).open().doubt


def test_it_shows_what_would_be_given_up_and_asks(data: Path) -> None:
    refused = trust(data, answer="n\n")
    assert refused.exit_code != 0
    for part in (TOPIC, "offset 5", "index 8 of term 1", "up to 3 records"):
        assert part in refused.output
    assert doubt(data).accepted == LogEnd()
    accepted = trust(data, answer="y\n")
    assert accepted.exit_code == 0, accepted.output
    assert f"topics/{TOPIC}/0 may lead after its next start." in accepted.output
    assert doubt(data).accepted == LogEnd(1, 8)
    assert doubt(data, 1) == Doubt()


def test_it_asks_nothing_with_yes_and_has_nothing_left_to_do_then(data: Path) -> None:
    (row,) = json.loads(trust(data, f"topics/{TOPIC}/0/", "--yes", "--json").stdout)
    assert (row["log"], row["end_offset"], row["records_max"]) == (f"topics/{TOPIC}/0", 5, 3)
    assert "No log here waits" in trust(data).output


def test_a_log_that_waits_for_nothing_is_refused_by_name(data: Path) -> None:
    refused = trust(data, f"topics/{TOPIC}/1", "--yes")
    assert refused.exit_code != 0
    assert f"These do: topics/{TOPIC}/0" in str(refused.exception)
    assert doubt(data).accepted == LogEnd()


def test_it_says_when_nobody_knows_how_much_is_missing(data: Path) -> None:
    path = data / "topics" / TOPIC / "0"
    Bench(RealFileSystem(), directory=path).open().set_doubt(Doubt(needed=UNKNOWN_END))
    assert "an unknown number of records" in trust(data, "--yes").output
    assert doubt(data).accepted == UNKNOWN_END
