"""What all readers of one specification share: its folder, its parameters, its problems."""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from penstock.pipelines.specification.problems import Place, Problem
from penstock.pipelines.specification.tree import Scalar
from penstock.spark.options.misspelt import nearest

# `$${` stands for `${`; the name of a parameter may be anything here, so that a wrong one is seen.
_REFERENCE = re.compile(r"\$\$\{|\$\{([^}\n]*)(\}?)")
_KNOWN_SHOWN_MAX = 12
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+://")


@dataclass(slots=True, kw_only=True)
class Context:
    """Problems are collected and reading goes on, so that all are reported at once."""

    file: str
    folder: Path
    """The folder of the file; paths in it are relative to this."""
    values: Mapping[str, str | None] | None
    """Of the parameters, None for one that was not given; no mapping: nothing is filled in."""
    problems: list[Problem] = field(default_factory=list)

    def problem(self, place: Place, sentence: str) -> None:
        problem = Problem(place, sentence)
        # A part that is merged into several places is read several times.
        if problem not in self.problems:
            self.problems.append(problem)

    def filled(self, scalar: Scalar) -> Scalar:
        """With the values of parameters in place of their names."""
        if self.values is None or "${" not in scalar.text:
            return scalar
        return replace(
            scalar, text=_REFERENCE.sub(lambda found: self._value(scalar, found), scalar.text)
        )

    def lacks_value(self, scalar: Scalar) -> bool:
        """Whether a text can't be judged, since a parameter in it has no value."""
        if self.values is None:
            return False
        names = [found[1] for found in _REFERENCE.finditer(scalar.text) if found[1] is not None]
        return any(self.values.get(name) is None for name in names)

    def path(self, text: str) -> str:
        """An absolute path; an address with a scheme other than file: stays as it is."""
        if text.startswith("file:"):
            text = unquote(urlsplit(text).path)
        if _SCHEME.match(text):
            return text
        return os.path.normpath(self.folder.absolute() / os.path.expanduser(text))

    def _value(self, scalar: Scalar, found: re.Match[str]) -> str:
        assert self.values is not None
        name = found[1]
        if name is None:
            return "${"
        place = scalar.place_at(found.start())
        if not found[2]:
            self.problem(place, f"The parameter {found[0]!r} has no closing brace.")
        elif name not in self.values:
            hint = nearest_or_known(name, self.values)
            self.problem(place, f"There is no parameter {name or '${}'}{hint}.")
        return self.values.get(name) or ""


def nearest_or_known(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: the nearest, or the few that there are."""
    names = list(known)
    close = nearest(name, names)
    if close is not None:
        return f"; the nearest is {close}"
    if not names:
        return ""
    if len(names) <= _KNOWN_SHOWN_MAX:
        return f"; there {'is' if len(names) == 1 else 'are'}: {', '.join(names)}"
    return ""
