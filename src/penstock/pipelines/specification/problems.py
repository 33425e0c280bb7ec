"""What is wrong with a specification: each problem names its file, its line and the word."""

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.model.errors import Explained


@dataclass(frozen=True, slots=True)
class Place:
    """Where something is; lines and columns count from 1."""

    file: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        parts = [self.file, *(str(part) for part in (self.line, self.column) if part is not None)]
        return ":".join(parts)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, as a sentence that holds the wrong word."""

    place: Place
    sentence: str

    def __str__(self) -> str:
        return f"{self.place}: {self.sentence}"


class SpecificationRefused(Explained):
    """A pipeline can't be run as it is described; all problems that were found, in file order."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))

    @classmethod
    def at(cls, place: Place, sentence: str) -> "SpecificationRefused":
        return cls([Problem(place, sentence)])
