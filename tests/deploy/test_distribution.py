"""Proves that what is distributed is whole, small, and all that an empty machine needs.

Unlike in tests/spark/test_wheel.py, nothing is there but Python and an index of packages: uv makes
the environments, and they end with the command.
"""

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

import penstock
from tests.documents import ROOT

UV = Path(sys.executable).with_name("uv")
# As the command `uvx` does, with the Python that runs the tests, and whatever the machine prefers.
UVX = (UV, "tool", "run", "--no-config", "--python", sys.executable)
BYTES_MAX = 3_000_000
# Packages come over the network, once; later environments take them from uv's cache.
TIMEOUT_S = 240.0
# Variables that would lead a program to this repository, or to the Python that runs the tests.
OUTSIDE = ("PYTHON", "PENSTOCK_", "VIRTUAL_ENV")
FIXTURES = """
import penstock
from penstock.client import Consumer, Producer


def test_a_broker_of_its_own(penstock_broker):
    penstock_broker.create_topic("orders")
    with Producer(penstock_broker.bootstrap) as producer:
        producer.send("orders", value=b"two apples")
    with Consumer("orders", group="kitchen", bootstrap=penstock_broker.bootstrap) as consumer:
        assert next(iter(consumer)).value == b"two apples"
"""

pytestmark = [pytest.mark.xdist_group("distribution"), pytest.mark.timeout(2 * TIMEOUT_S)]


def run(*words: str | Path, folder: Path = Path("/")) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OUTSIDE)}
    outcome = subprocess.run(
        [str(word) for word in words],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env=kept,
        cwd=folder,
    )
    assert outcome.returncode == 0, f"{words}: {outcome.stdout[-2000:]} {outcome.stderr[-3000:]}"
    return outcome.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source distribution, and a wheel that was made from it and not from the repository."""
    folder = tmp_path_factory.mktemp("dist")
    build: list[str | Path] = [sys.executable, "-m", "build", "--outdir", folder, ROOT]
    if find_spec("hatchling") is not None:
        # Otherwise it is fetched from an index, which may be slow or out of reach.
        build.append("--no-isolation")
    run(*build)
    return folder


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    return next(dist.glob("*.whl"))


@pytest.fixture(scope="module")
def sdist(dist: Path) -> Path:
    return next(dist.glob("*.tar.gz"))


def sources() -> set[str]:
    listed = run(
        "git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard", "src"
    ).split()
    return {name.removeprefix("src/") for name in listed if (ROOT / name).exists()}


def test_the_wheel_holds_every_source_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {name for name in names if ".dist-info/" not in name} == sources()
    assert any(name.endswith("/licenses/LICENSE") for name in names)


def test_the_source_distribution_holds_what_the_wheel_is_made_of(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"src/{name}" for name in sources()} <= names
    assert {"LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml", "PKG-INFO"} <= names
    assert [name for name in names if name.startswith(("tests/", ".ci", "docs/"))] == []


def test_both_are_small(wheel: Path, sdist: Path) -> None:
    assert wheel.stat().st_size <= BYTES_MAX
    assert sdist.stat().st_size <= BYTES_MAX


def test_the_wheel_runs_on_a_machine_that_has_nothing(wheel: Path, tmp_path: Path) -> None:
    """Three nodes, one of which is killed; nothing is lost."""
    command = (*UVX, "--from", wheel, "penstock")
    words = ("demo", "--no-spark", "--seconds", "3", "--rate", "200", "--json")
    summary = json.loads(run(*command, *words, folder=tmp_path))
    assert summary["passed"] is True
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_fixtures_work_on_a_machine_that_has_nothing(wheel: Path, tmp_path: Path) -> None:
    (tmp_path / "test_orders.py").write_text(FIXTURES)
    command = (*UVX, "--with", wheel, "pytest")
    assert "1 passed" in run(*command, "-q", "-p", "no:cacheprovider", folder=tmp_path)


def test_the_source_distribution_can_be_installed(sdist: Path, tmp_path: Path) -> None:
    said = run(*UVX, "--from", sdist, "penstock", "--version")
    assert said == f"penstock {penstock.__version__}\n"
