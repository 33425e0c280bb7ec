"""Proves that what README, tutorial and how-to pages tell people to type works as written.

Only the address changes: the blocks run against a broker on a free port, which is passed in through
the environment where a command has a default and put into the text where an address is written out.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.documents import ROOT, Document
from tests.e2e.processes import READY, clean_environment

ADDRESS = "127.0.0.1:9092"
GRPC_ADDRESS = "localhost:9093"
HTTP_ADDRESS = "localhost:9094"
INSTALL = "pip install ."
UP = "penstock up"
# Blocks that need Spark: tests/spark/test_documents.py runs them, where it is installed.
SPARK = re.compile(r"penstock\.spark|^penstock (pipeline|archive|replay) ", re.M)
BLOCK_TIMEOUT_S = 60
# Packages come over the network; the test that asks for them first has all this time and its own.
INSTALL_TIMEOUT_S = 240
TEST_TIMEOUT_S = 600
HOW_TO = [
    "connect-clients",
    "run-a-node",
    "choose-durability",
    pytest.param("use-queues", marks=pytest.mark.slow),
    "use-queues-with-curl",
    "hold-locks",
    "use-http",
    "use-schemas",
    pytest.param("use-grpc", marks=pytest.mark.slow),
    "ask-with-sql",
]


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first command of README, run in an environment that holds nothing else."""
    place = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", place], check=True, timeout=INSTALL_TIMEOUT_S)
    program = [place / "bin" / "python", "-m", *INSTALL.split(), "--quiet"]
    # Of what is installed, the pages import a small part: only that is compiled, when it is.
    environment = os.environ | {"PIP_NO_COMPILE": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    outcome = subprocess.run(
        program,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=INSTALL_TIMEOUT_S,
    )
    assert outcome.returncode == 0, outcome.stderr
    return place / "bin"


class Reader:
    """Somebody who follows a page: a shell in an empty folder and a broker in another terminal."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self.folder = folder
        self.output = ""
        self.address = ""
        self.grpc = ""
        self.http = ""
        self._broker: subprocess.Popen[str] | None = None
        self._environment = clean_environment(
            {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "PENSTOCK_KAFKA": "127.0.0.1:0"}
        )

    def follow(self, document: Document) -> str:
        """Run every block in order; what they printed."""
        for block in document.blocks("bash", "python"):
            if SPARK.search(block.text):
                continue
            if block.language == "python":
                self._run(["python", "-c", block.text])
            elif UP in block.text.splitlines():
                assert block.text.splitlines() == [INSTALL, UP]
                self.start_broker()
            else:
                self._run(["bash", "-euo", "pipefail", "-c", block.text])
        return self.output

    def start_broker(self) -> None:
        self._broker = subprocess.Popen(
            UP.split(), cwd=self.folder, env=self._environment, stdout=subprocess.PIPE, text=True
        )
        assert self._broker.stdout is not None
        ready = READY.search(self._broker.stdout.readline())
        assert ready, "the broker did not start"
        self.address = f"{ready['host']}:{ready['port']}"
        self.grpc = ready["grpc"]
        self.http = ready["http"]
        self._environment["PENSTOCK_BOOTSTRAP"] = self.address
        self._environment["PENSTOCK_REGISTRY"] = f"http://{self.http}"

    def _run(self, command: list[str]) -> None:
        outcome = subprocess.run(
            [
                word.replace(ADDRESS, self.address)
                .replace(GRPC_ADDRESS, self.grpc)
                .replace(HTTP_ADDRESS, self.http)
                for word in command
            ],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=BLOCK_TIMEOUT_S,
        )
        assert outcome.returncode == 0, f"{command[-1]}\n{outcome.stdout}\n{outcome.stderr}"
        self.output += outcome.stdout

    def close(self) -> None:
        if self._broker is not None:
            self._broker.kill()
            self._broker.communicate(timeout=10)


@pytest.fixture
def reader(installed: Path, tmp_path: Path) -> Iterator[Reader]:
    following = Reader(installed, tmp_path)
    yield following
    following.close()


@pytest.mark.timeout(TEST_TIMEOUT_S)
@pytest.mark.xdist_group("documents")
def test_readme(reader: Reader) -> None:
    output = reader.follow(Document(ROOT / "README.md"))
    assert "kitchen = 21.5" in output
    assert "cellar is at 12.0 degrees" in output
    assert "b'attic' b'17.2'" in output
    assert sorted(re.findall(r"^done: (.*)$", output, re.M)) == ["clean", "cook", "rest"]
    assert sorted(re.findall(r"^got (.*)$", output, re.M)) == ["clean", "cook", "rest"]
    assert len(re.findall(r"^21\.7$", output, re.M)) == 2, "the group reads twice, not three times"


@pytest.mark.timeout(TEST_TIMEOUT_S)
@pytest.mark.xdist_group("documents")
def test_tutorial(reader: Reader) -> None:
    output = reader.follow(Document(ROOT / "docs" / "tutorial" / "first-steps.md"))
    assert "lost: 0" in output
    assert "read: 300" in output


@pytest.mark.parametrize("page", HOW_TO)
def test_how_to(page: str, tmp_path: Path) -> None:
    """These pages use other clients too, which the environment of the tests has."""
    reader = Reader(Path(sys.executable).parent, tmp_path)
    try:
        reader.start_broker()
        reader.follow(Document(ROOT / "docs" / "how-to" / f"{page}.md"))
    finally:
        reader.close()
