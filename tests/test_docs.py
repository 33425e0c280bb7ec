"""Proves that the documents name only what exists, and leave out nothing that does.

What README, tutorial and how-to pages tell people to type is run by tests/e2e/test_documents.py;
the pages on settings and commands are compared in tests/unit/cli/test_reference_docs.py.
"""

import re
import shlex
import tomllib
from xml.etree import ElementTree

import click
import pytest

from penstock.cli.main import cli
from tests.documents import ROOT, Document, documents
from tests.reference_pages import PAGES

DOCUMENTS = documents()
BY_NAME = {document.name: document for document in DOCUMENTS}
PATH = re.compile(r"^(?:src|tests|docs|benchmarks|deploy|examples|\.ci|\.github)(?:/[\w.*-]+)+/?$")
TEXT_SUFFIXES = {".md", ".py", ".yaml"}
TOP_LEVEL_FILE = re.compile(r"^(?:Makefile|LICENSE|\.importlinter|\.gitignore|\w+\.(?:toml|md))$")
# Files that belong to a reader of the documents, not to this repository.
READERS_FILES = {"sensors.py", "reader.py"}
MAKE_TARGET = re.compile(r"^([a-z]+):.*##", re.M)


def ids(document: Document) -> str:
    return document.name


@pytest.mark.parametrize("document", DOCUMENTS, ids=ids)
def test_links_lead_somewhere(document: Document) -> None:
    broken = []
    for link in document.links():
        name, _, anchor = link.partition("#")
        if "://" in name:
            continue
        target = (document.path.parent / name).resolve() if name else document.path
        if not target.exists() or (anchor and anchor not in Document(target).anchors()):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=ids)
def test_named_paths_exist(document: Document) -> None:
    missing = []
    for span in document.spans():
        is_path = PATH.match(span) or (TOP_LEVEL_FILE.match(span) and span not in READERS_FILES)
        if is_path and not list(ROOT.glob(span.rstrip("/"))):
            missing.append(span)
    assert missing == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=ids)
def test_named_commands_and_options_exist(document: Document) -> None:
    wrong = []
    for line in document.commands():
        words = shlex.split(line, comments=True)
        problem = make_problem(words) if words[0] == "make" else penstock_problem(words[1:])
        if problem:
            wrong.append(f"{line}: {problem}")
    assert wrong == []


def make_targets() -> set[str]:
    return set(MAKE_TARGET.findall((ROOT / "Makefile").read_text()))


def make_problem(words: list[str]) -> str:
    unknown = [word for word in words[1:] if "=" not in word and word not in make_targets()]
    return f"no target {unknown}" if unknown else ""


def penstock_problem(words: list[str]) -> str:
    """What is wrong with a command line, or nothing."""
    command: click.Command = cli
    context = click.Context(cli)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        child = command.get_command(context, words[0])
        if child is None:
            return f"no command {words[0]}"
        command, words = child, words[1:]
    if "--" in words:
        # What follows is not ours.
        words = words[: words.index("--")]
    known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
    known |= {"--help", "-h", "--version"}
    unknown = [word for word in words if word.startswith("-") and option_name(word) not in known]
    unknown = [word for word in unknown if not re.match(r"^-\d", word)]
    return f"no option {unknown}" if unknown else ""


def option_name(word: str) -> str:
    return word.split("=")[0]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_that_follows_from_the_code_is_up_to_date(page: str) -> None:
    """`make docs` writes it again."""
    assert BY_NAME[f"docs/reference/{page}"].text == PAGES[page]()


def test_every_make_target_is_explained() -> None:
    named = {span for document in DOCUMENTS for span in document.spans()}
    assert {f"make {target}" for target in make_targets() - {"help", "clean", "format"}} <= named


def test_every_package_is_on_the_map() -> None:
    text = BY_NAME["ARCHITECTURE.md"].text
    source = ROOT / "src" / "penstock"
    packages = [path.parent for path in source.glob("*/__init__.py")]
    assert [path.name for path in packages if f"`src/penstock/{path.name}`" not in text] == []


def test_every_decision_is_in_the_index() -> None:
    index = BY_NAME["docs/adr/README.md"].links()
    pages = sorted(path.name for path in (ROOT / "docs" / "adr").glob("0*.md"))
    assert sorted(index) == pages


def test_the_picture_of_the_demo_is_shown_and_shows_a_whole_run() -> None:
    """CONTRIBUTING.md says how to record it again."""
    assert "](docs/images/demo.svg)" in (ROOT / "README.md").read_text()
    picture = ElementTree.parse(ROOT / "docs" / "images" / "demo.svg").getroot()
    assert picture.tag == "{http://www.w3.org/2000/svg}svg"
    text = "".join(picture.itertext()).replace("\xa0", " ")
    for seen in ("Penstock demo", "writes paused", "0 lost, 0 doubled", "is back", "heard by"):
        assert seen in text, seen


def test_nobody_is_asked_to_install_a_distribution_of_another_name() -> None:
    """`penstock` on PyPI is another project; only the package and the command are called that."""
    name = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["name"]
    other = re.compile(
        rf"""pip install ['"]?(?!{name}\b)penstock\b"""
        rf"""|(?<![\w-])penstock\[[a-z]"""
        rf"""|\b(?:version|distribution|requires)\(['"](?!{name}\b)penstock\b"""
    )
    sources = [path for path in (ROOT / "src").rglob("*") if path.suffix in TEXT_SUFFIXES]
    files = [ROOT / "pyproject.toml", ROOT / "Makefile", ROOT / ".ci" / "run", *sources]
    files += [document.path for document in DOCUMENTS]
    found = {str(path.relative_to(ROOT)): other.findall(path.read_text()) for path in files}
    assert {path: names for path, names in found.items() if names} == {}


def test_documents_do_not_leak_a_machine() -> None:
    """Paths of somebody's home and half-finished remarks have no place in a product."""
    leak = re.compile(r"/(home|root|Users)/\w|TODO|FIXME", re.I)
    leaks = {document.name: leak.findall(document.text) for document in DOCUMENTS}
    assert {name: found for name, found in leaks.items() if found} == {}
