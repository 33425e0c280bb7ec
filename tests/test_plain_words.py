"""Proves that nothing a user reads falls back into words that native readers stumble over.

Only words that are always wrong here are listed. Most have a plain one: "again", "forever", "N",
"reported", "leads", "fixed".
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

import pytest

from tests.documents import ROOT

QUAINT = re.compile(
    r"\b(anew|whoever|whomsoever|nought|for ever|so many|upon|thereof|therein|whence|lest|mended"
    r"|amiss|in office|(?:is|are|was|were) told|unless told otherwise)\b",
    re.IGNORECASE,
)
SOURCES = sorted((ROOT / "src").rglob("*.py"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Names of tests and files, and what a terminal shows.
CODE = re.compile(r"```.*?```|`[^`]*`", re.DOTALL)


def strings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """What the code can print: its texts, without docstrings that no command shows."""
    shown = {id(node.body[0]) for node in ast.walk(tree) if _is_command(node)}
    docstrings = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and id(node) not in shown
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) in docstrings:
                continue
            yield node.lineno, node.value


def _is_command(node: ast.AST) -> TypeGuard[ast.FunctionDef]:
    """Its docstring is what `--help` prints."""
    if not isinstance(node, ast.FunctionDef):
        return False
    return any(re.search(r"command|group", ast.unparse(one)) for one in node.decorator_list)


def found_in_sources() -> Iterator[str]:
    for path in SOURCES:
        for line, text in strings(ast.parse(path.read_text())):
            for quaint in QUAINT.findall(text):
                yield f"{path.relative_to(ROOT)}:{line}: {quaint}"


def found_on(page: Path) -> list[str]:
    return QUAINT.findall(CODE.sub("", page.read_text()))


def test_messages_use_plain_words() -> None:
    assert list(found_in_sources()) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_documents_use_plain_words(page: Path) -> None:
    assert found_on(page) == []


def test_quaint_words_are_found_in_what_a_command_prints_and_not_in_its_comments() -> None:
    source = '''
@click.command()
def show():
    """Shows whoever asks."""
    # Written anew.
    raise Failed(f"{name} was told")

def helper():
    """Whoever calls this."""
'''
    texts = [text for _, text in strings(ast.parse(source))]
    assert QUAINT.findall(" ".join(texts)) == ["whoever", "was told"]
