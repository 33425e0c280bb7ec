"""Reads the project's documents: their code blocks, code spans and links."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^ *```$", re.M | re.S)
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.M)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced piece of code."""

    language: str
    text: str


class Document:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = str(path.relative_to(ROOT))
        self.text = path.read_text()

    def blocks(self, *languages: str) -> Iterator[Block]:
        for match in FENCE.finditer(self.text):
            indent = match["indent"]
            lines = [line.removeprefix(indent) for line in match["text"].splitlines()]
            if not languages or match["language"] in languages:
                yield Block(language=match["language"], text="\n".join(lines) + "\n")

    def spans(self) -> list[str]:
        return SPAN.findall(FENCE.sub("", self.text))

    def links(self) -> list[str]:
        return LINK.findall(FENCE.sub("", self.text))

    def anchors(self) -> set[str]:
        """What a link may name behind `#`: the headings as hosts of repositories spell them."""
        headings = HEADING.findall(FENCE.sub("", self.text))
        return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}

    def commands(self) -> Iterator[str]:
        """Every line or span that calls one of our programs, without its output or its pipe."""
        lines = [line for block in self.blocks() for line in block.text.splitlines()]
        for line in [*lines, *self.spans()]:
            for part in re.split(r"\||&&|;", line):
                # A node's line that it is ready begins like a command.
                if re.match(r"\s*(penstock|make) (?!node \d)[a-z]", part):
                    yield part.strip()


def documents() -> list[Document]:
    """Every Markdown page of the project."""
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")]
    return [Document(path) for path in sorted(pages)]
