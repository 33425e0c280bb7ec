"""Asks a schema registry: that of any node, or another one that serves Confluent's API."""

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from penstock.client.errors import ClientError
from penstock.client.http_door import HttpDoor, HttpRefused, Place

DEFAULT_REGISTRY: Final = "http://127.0.0.1:9094"
CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
TIMEOUT_S: Final = 35.0
NOT_FOUND: Final = 404
INCOMPATIBLE: Final = 409
# A node that restarts, or a leader that is being elected, is back soon.
ROUNDS: Final = 5
_PORTS: Final = {"http": 80, "https": 443}


class RegistryRefused(ClientError):
    """The registry's own words, with its status and code."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class RegistryClient:
    """Small and without dependencies, because Spark's workers use it too."""

    def __init__(self, url: str = DEFAULT_REGISTRY, *, timeout_s: float = TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        place = _place(url)
        self._door = HttpDoor(
            lambda _: [place],
            name=f"schema registry answers at {url.rstrip('/')}",
            is_repeatable=True,
            rounds=ROUNDS,
            content_type=CONTENT_TYPE,
        )

    # Schemas

    def schema(self, schema_id: int, form: str = "") -> dict[str, Any]:
        """Raises RegistryRefused with the status 404 if there is no such id."""
        found: dict[str, Any] = self._ask("GET", f"/schemas/ids/{schema_id}", format=form)
        return found

    def version(
        self, subject: str, version: str = "latest", form: str = "", *, deleted: bool = False
    ) -> dict[str, Any]:
        path = f"/subjects/{_segment(subject)}/versions/{_segment(version)}"
        found: dict[str, Any] = self._ask("GET", path, format=form, deleted=_flag(deleted))
        return found

    def schemas(self, *, deleted: bool = False, latest_only: bool = False) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._ask(
            "GET", "/schemas", deleted=_flag(deleted), latestOnly=_flag(latest_only)
        )
        return found

    def versions(self, subject: str) -> list[int]:
        found: list[int] = self._ask("GET", f"/subjects/{_segment(subject)}/versions")
        return found

    def register(
        self,
        subject: str,
        schema: str,
        kind: str,
        references: Sequence[dict[str, Any]] = (),
        *,
        normalize: bool = False,
    ) -> dict[str, Any]:
        """The id, and the version where the registry says it."""
        body = _body(schema, kind, references)
        path = f"/subjects/{_segment(subject)}/versions"
        found: dict[str, Any] = self._ask("POST", path, body, normalize=_flag(normalize))
        return found

    def faults(
        self,
        subject: str,
        schema: str,
        kind: str,
        references: Sequence[dict[str, Any]] = (),
    ) -> list[str] | None:
        """Why a schema can't be the next version of a subject; None if it can."""
        path = f"/compatibility/subjects/{_segment(subject)}/versions"
        body = _body(schema, kind, references)
        found: dict[str, Any] = self._ask("POST", path, body, verbose="true")
        return None if found["is_compatible"] else list(found.get("messages", []))

    def delete(self, subject: str, version: str | None, *, permanent: bool) -> list[int]:
        """The versions that are gone; without one, all."""
        path = f"/subjects/{_segment(subject)}"
        if version is not None:
            path = f"{path}/versions/{_segment(version)}"
        found: int | list[int] = self._ask("DELETE", path, permanent=_flag(permanent))
        return found if isinstance(found, list) else [found]

    def level(self, subject: str) -> str:
        path = f"/config/{_segment(subject)}"
        return str(self._ask("GET", path, defaultToGlobal="true")["compatibilityLevel"])

    def _ask(self, method: str, path: str, body: Any = None, **query: str) -> Any:
        given = urlencode({name: value for name, value in query.items() if value})
        try:
            return self._door.ask(
                method, f"{path}{'?' if given else ''}{given}", body, self._timeout_s
            )
        except HttpRefused as refused:
            code = refused.document.get("error_code")
            known = code if isinstance(code, int) else refused.status
            raise RegistryRefused(refused.status, known, str(refused)) from None


def _place(url: str) -> Place:
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS[parts.scheme]
    except (ValueError, KeyError):
        parts, port = urlsplit(""), 0
    if not parts.hostname:
        raise ClientError(f"The registry's address {url!r} is not like {DEFAULT_REGISTRY}.")
    return Place(parts.hostname, port, parts.scheme == "https", parts.path.rstrip("/"))


def _segment(text: str) -> str:
    return quote(text, safe="")


def _flag(value: bool) -> str:
    return "true" if value else ""


def _body(schema: str, kind: str, references: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {"schema": schema, "schemaType": kind, "references": list(references)}
