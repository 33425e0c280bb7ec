"""Proves that the packages import only what ARCHITECTURE.md allows, and that pure code is pure."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple, get_args, get_type_hints

import pytest

from penstock.broker.services import Services
from penstock.model.errors import Reason

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "penstock"
REASON = re.compile(r"\bReason\.([A-Z_]+)")

# What each part may import of Penstock itself. A part that is missing here fails the test, so a
# new package has to say what it stands on.
ALLOWED: dict[str, set[str]] = {
    "model": set(),
    "records": {"model"},
    "protocol": {"records", "model"},
    "columns": {"records", "model"},
    "registry": {"model"},
    "observe": {"model"},
    "net": {"model"},
    "raft": {"model"},
    "storage": {"records", "model"},
    "replication": {"raft", "storage", "net", "records", "model"},
    "cluster": {"replication", "records", "model"},
    "groups": {"replication", "records", "model"},
    "queues": {"replication", "records", "model"},
    "broker": {"cluster", "groups", "queues", "replication", "registry", "records", "model"},
    "frontdoor": {"broker", "protocol", "net", "columns", "registry", "records", "model"},
    "config": {"model"},
    "client": {"columns", "protocol", "records", "model"},
    "spark": {"client", "columns", "records", "model"},
    "pipelines": {"spark", "client", "columns", "records", "model"},
    "cli": {"server", "config", "pipelines", "spark", "client", "model"},
    "testing": {"server", "config", "client", "model"},
}
# The composition root builds everything, so it may import everything below the command line.
COMPOSITION_ROOT = "server"
COMPOSITION_FORBIDDEN = {"cli", "testing", "client"}

PURE_PACKAGES = ("model", "records", "protocol", "raft", "registry")
IMPURE_MODULES = {"asyncio", "socket", "os", "time", "random", "threading", "subprocess"}

# Modules that the path from process start to the first answer must not load: they would eat the
# start budget of 300 ms (docs/adr/0013-click-and-own-settings.md).
SLOW_MODULES = ("rich", "yaml", "confluent_kafka", "pydantic", "numpy", "opentelemetry", "pytest")


@cache
def source_files() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


class Source(NamedTuple):
    """What the tests ask of a file."""

    # Every absolute module name that it imports, at any depth of its code.
    imports: frozenset[str]
    is_silent: bool


@cache
def read(path: Path) -> Source:
    text = path.read_text()
    tree = ast.parse(text, str(path))
    is_silent = bool(text.strip()) and not ast.get_docstring(tree)
    return Source(frozenset(imported_modules(path, tree)), is_silent)


def part_of(path: Path) -> str:
    """The package, or top-level module, that a source file belongs to."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_modules(path: Path, tree: ast.Module) -> Iterator[str]:
    package = path.relative_to(SOURCE.parent).with_suffix("").parts
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level] if node.level else ()
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def parts_imported(path: Path) -> set[str]:
    names = (name.split(".") for name in read(path).imports)
    found = {name[1] for name in names if name[0] == "penstock" and len(name) > 1}
    return {part for part in found if (SOURCE / part).is_dir() or (SOURCE / f"{part}.py").exists()}


def test_import_linter_contracts_hold() -> None:
    outcome = subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


def test_every_part_imports_only_what_it_may() -> None:
    """The layers say what is below; this says which of the lower parts a part may know at all."""
    wrong = []
    for path in source_files():
        part = part_of(path)
        if part in ("__init__", "__main__"):
            continue
        if part == COMPOSITION_ROOT:
            forbidden = parts_imported(path) & COMPOSITION_FORBIDDEN
        else:
            forbidden = parts_imported(path) - ALLOWED[part] - {part, "__init__", "observe"}
        wrong += [f"{path.relative_to(ROOT)} imports penstock.{name}" for name in forbidden]
    assert wrong == []


def test_doors_see_use_cases_and_nothing_behind_them() -> None:
    """What one door has to ask for, the others will too: so it is a method of a use case."""
    behind = {"cluster", "groups", "storage", "raft"}
    seen = get_type_hints(Services).items()
    # A field that may be None is a union.
    kinds = [(name, each) for name, kind in seen for each in (get_args(kind) or (kind,))]
    assert [name for name, kind in kinds if behind & {*kind.__module__.split(".")[1:2]}] == []


def test_every_reason_is_one_of_the_broker() -> None:
    """What only one door refuses, in the words of its protocol, that door says by itself."""
    told = (SOURCE / "model" / "errors.py", SOURCE / "frontdoor")
    behind = [path for path in source_files() if not any(map(path.is_relative_to, told))]
    used = {name for path in behind for name in REASON.findall(path.read_text())}
    assert {reason.name for reason in Reason} - used == set()


def test_pure_code_imports_nothing_that_acts() -> None:
    wrong = []
    for path in source_files():
        if part_of(path) in PURE_PACKAGES or path.name == "state.py":
            impure = {name.split(".")[0] for name in read(path).imports} & IMPURE_MODULES
            wrong += [f"{path.relative_to(ROOT)} imports {name}" for name in sorted(impure)]
    assert wrong == []


@pytest.mark.parametrize("entry", ["penstock.cli.main", "penstock.server"])
def test_start_path_loads_nothing_slow(entry: str) -> None:
    program = f"import sys, {entry}; print(*[m for m in {SLOW_MODULES!r} if m in sys.modules])"
    outcome = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=True
    )
    assert outcome.stdout.split() == []


def test_the_server_never_imports_the_client() -> None:
    """The client library is for users; a broker that needs it would need itself to start."""
    program = "import sys, penstock.server; print(*sys.modules)"
    outcome = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=True
    )
    loaded = outcome.stdout.split()
    assert not [name for name in loaded if name.startswith(("penstock.client", "penstock.cli"))]


def test_no_file_outgrows_a_reader() -> None:
    """Files are around 300 lines; one beyond 600 has more than one purpose."""
    long = {
        str(path.relative_to(ROOT)): lines
        for path in source_files()
        if (lines := len(path.read_text().splitlines())) > 600
    }
    assert long == {}


def test_every_source_file_says_what_it_is_for() -> None:
    silent = [str(path.relative_to(ROOT)) for path in source_files() if read(path).is_silent]
    assert silent == []
