"""Proves that only tests of real processes run twice, and that a run with many flaky ones fails."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.second_run import MOST_FLAKY

CONFTEST = """
from tests.second_run import allow_second_run, pytest_sessionfinish, pytest_terminal_summary

def pytest_collection_modifyitems(config, items):
    allow_second_run(items, config.rootpath)
"""
FAILS_ONCE = """
from pathlib import Path
import pytest

@pytest.mark.parametrize("number", range({count}))
def test_fails_once(number):
    ran = Path(__file__).with_suffix(f".{{number}}")
    if not ran.exists():
        ran.touch()
        raise RuntimeError("the first run")
"""
FAILS = "def test_fails(): raise RuntimeError('every run')\n"
# What a second run needs. All that are installed take most of a second to import.
PLUGINS = ("-p", "no:cacheprovider", "-p", "xdist", "-p", "pytest_rerunfailures")
SOURCES = Path(__file__).resolve().parents[3]


def run(root: Path, folder: str, source: str, *options: str) -> subprocess.CompletedProcess[str]:
    (root / "pytest.ini").write_text("[pytest]\n")
    (root / "conftest.py").write_text(CONFTEST)
    module = root / "tests" / folder / "test_sample.py"
    module.parent.mkdir(parents=True)
    module.write_text(source)
    # The sample's folder is called "tests" too: it is not a package there, so ours is imported.
    command = [sys.executable, "-m", "pytest", *PLUGINS, *options, "."]
    return subprocess.run(
        command,
        cwd=root,
        env={"PYTHONPATH": str(SOURCES), "PATH": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("folder", ["e2e", "spark"])
@pytest.mark.parametrize("options", [(), ("-n", "2")])
def test_a_flaky_test_is_named_and_passes(
    tmp_path: Path, folder: str, options: tuple[str, ...]
) -> None:
    ended = run(tmp_path, folder, FAILS_ONCE.format(count=MOST_FLAKY), *options)

    assert ended.returncode == 0, ended.stdout
    assert f"{MOST_FLAKY} flaky" in ended.stdout
    assert f"FLAKY tests/{folder}/test_sample.py::test_fails_once[0]" in ended.stdout
    assert "RuntimeError: the first run" in ended.stdout


@pytest.mark.parametrize("options", [(), ("-n", "2")])
def test_more_than_a_few_flaky_tests_fail_the_run(tmp_path: Path, options: tuple[str, ...]) -> None:
    ended = run(tmp_path, "e2e", FAILS_ONCE.format(count=MOST_FLAKY + 1), *options)

    assert ended.returncode == 1, ended.stdout


@pytest.mark.parametrize("folder", ["unit", "sim"])
def test_unit_tests_and_simulations_never_run_twice(tmp_path: Path, folder: str) -> None:
    ended = run(tmp_path, folder, FAILS_ONCE.format(count=1))

    assert ended.returncode == 1, ended.stdout
    assert "flaky" not in ended.stdout


def test_a_test_that_fails_twice_is_not_called_flaky(tmp_path: Path) -> None:
    ended = run(tmp_path, "e2e", FAILS)

    assert ended.returncode == 1, ended.stdout
    assert "flaky" not in ended.stdout
