"""Writes the Python source of one codec function, with the constants that it refers to."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast


class Source:
    """Lines with their indentation, names that don't clash, and a namespace for constants."""

    def __init__(self, signature: str) -> None:
        self.lines = [f"def {signature}:"]
        self.depth = 1
        self.namespace: dict[str, object] = {}
        self._names = 0

    def line(self, text: str) -> None:
        self.lines.append(" " * self.depth + text)

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        self.line(header)
        self.depth += 1
        yield
        self.depth -= 1

    def name(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def constant(self, prefix: str, value: object) -> str:
        """A name in the compiled function's globals for a value made now."""
        name = self.name(prefix)
        self.namespace[name] = value
        return name

    def compile(self, function_name: str) -> Callable[..., Any]:
        if len(self.lines) == 1:
            self.line("pass")
        exec("\n".join(self.lines), self.namespace)
        return cast("Callable[..., Any]", self.namespace[function_name])
