"""The table of routes: what each is called, takes and answers, and how a path finds it."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote

from penstock.frontdoor.http.problems import Problem
from penstock.frontdoor.http.requests import JSON_TYPE, Answer, Request, problem_answer

if TYPE_CHECKING:
    from penstock.frontdoor.http.context import Context

Handler = Callable[["Context", Request], Awaitable[Answer]]

# No segment of a path is this.
_PARAMETER = "/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """What may stand in the query, or in a header."""

    name: str
    help: str
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "string"})
    place: Literal["query", "header"] = "query"


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    method: str
    # Names in braces stand for one segment each.
    path: str
    handler: Handler
    summary: str
    help: str = ""
    parameters: tuple[Parameter, ...] = ()
    # The shape of the body by content type; None stands for any bytes. Empty: there is no body.
    bodies: Mapping[str, Any] = field(default_factory=dict)
    # The shape of a good answer by status; None for one without a body.
    answers: Mapping[int, Any] = field(default_factory=lambda: {200: None})
    answer_types: tuple[str, ...] = (JSON_TYPE,)
    # Statuses of problems beside those that every route may answer.
    problems: tuple[int, ...] = ()
    # How problems look: those of an API that others defined are not problem documents.
    show_problem: Callable[[Problem], Answer] = problem_answer
    # Whether parameters that are not listed are ignored, as that API's own servers do.
    ignores_parameters: bool = False
    # A GET that does more than show something.
    has_effects: bool = False

    @property
    def is_change(self) -> bool:
        return self.has_effects or self.method != "GET"

    @property
    def names(self) -> tuple[str, ...]:
        """Those in braces, in order."""
        return tuple(
            each[1:-1] for each in self.path.split("/") if each[:1] == "{" and each[-1:] == "}"
        )

    @property
    def query_names(self) -> set[str]:
        return {each.name for each in self.parameters if each.place == "query"}


class Router:
    """Finds a route by walking the segments of a path."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._root: dict[str, Any] = {}
        for route in routes:
            node = self._root
            for segment in route.path.split("/")[1:]:
                node = node.setdefault(_PARAMETER if segment[:1] == "{" else segment, {})
            methods = node.setdefault("", {})
            assert route.method not in methods, f"{route.method} {route.path} is there twice"
            names = None if route.ignores_parameters else frozenset(route.query_names)
            methods[route.method] = (route, route.names, names)

    def find(
        self, method: str, raw_path: bytes
    ) -> tuple[Route, dict[str, str], frozenset[str] | None]:
        """The route, what stands for its names, and its query's names, or None if it takes any;
        raises Problem."""
        node: dict[str, Any] | None = self._root
        values: list[str] = []
        for segment in raw_path.decode("latin-1").split("/")[1:]:
            assert node is not None
            following = node.get(segment) if segment else None
            if following is None:
                following = node.get(_PARAMETER)
                values.append(_decoded(segment))
            if following is None or not segment:
                raise _not_found(raw_path)
            node = following
        methods = node.get("") if node else None
        if not methods:
            raise _not_found(raw_path)
        found = methods.get(method) or (methods.get("GET") if method == "HEAD" else None)
        if found is None:
            allowed = ", ".join(sorted(methods))
            detail = f"{method} can't be used here, only {allowed}."
            raise Problem(405, detail, reason="method_not_allowed", headers={"allow": allowed})
        route, names, query_names = found
        return route, dict(zip(names, values, strict=True)), query_names


def _decoded(segment: str) -> str:
    try:
        return unquote(segment, errors="strict")
    except UnicodeDecodeError:
        raise Problem(400, "The path of the URL is not UTF-8.") from None


def _not_found(raw_path: bytes) -> Problem:
    path = raw_path.decode("latin-1")[:200]
    return Problem(404, f"There is nothing at {path}; /docs lists all paths.", reason="no_route")
