"""Asks a schema registry: that of any node, or another one that serves Confluent's API."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from penstock.client.errors import BrokerUnreachable, ClientError

DEFAULT_REGISTRY: Final = "http://127.0.0.1:9094"
CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
TIMEOUT_S: Final = 35.0
ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
NOT_FOUND: Final = 404
INCOMPATIBLE: Final = 409
# A node that restarts, or a leader that is being elected, is back soon.
ATTEMPTS: Final = 5
PAUSE_S: Final = 0.5
_PASSING: Final = (502, 503, 504)


class RegistryRefused(ClientError):
    """The registry's own words, with its status and code."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class RegistryClient:
    """Small and without dependencies, because Spark's workers use it too."""

    def __init__(self, url: str = DEFAULT_REGISTRY, *, timeout_s: float = TIMEOUT_S) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise ClientError(f"The registry's address {url!r} is not like {DEFAULT_REGISTRY}.")
        self._url = url.rstrip("/")
        self._timeout_s = timeout_s

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

    # HTTP

    def _ask(self, method: str, path: str, body: Any = None, **query: str) -> Any:
        given = urlencode({name: value for name, value in query.items() if value})
        request = urllib.request.Request(
            f"{self._url}{path}{'?' if given else ''}{given}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": CONTENT_TYPE, "Accept": CONTENT_TYPE},
            method=method,
        )
        for attempt in range(1, ATTEMPTS + 1):
            try:
                with urllib.request.urlopen(request, timeout=self._timeout_s) as answer:
                    return json.loads(answer.read(ANSWER_BYTES_MAX))
            except urllib.error.HTTPError as refused:
                if refused.code not in _PASSING or attempt == ATTEMPTS:
                    raise _refused(refused) from None
            except (OSError, ValueError) as failed:
                if attempt == ATTEMPTS or isinstance(failed, ValueError):
                    raise BrokerUnreachable(
                        f"No schema registry answers at {self._url}: {_reason(failed)}."
                    ) from failed
            time.sleep(PAUSE_S)
        raise AssertionError("the last attempt returns or raises")


def _segment(text: str) -> str:
    return quote(text, safe="")


def _flag(value: bool) -> str:
    return "true" if value else ""


def _body(schema: str, kind: str, references: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {"schema": schema, "schemaType": kind, "references": list(references)}


def _refused(refused: urllib.error.HTTPError) -> RegistryRefused:
    try:
        body = json.loads(refused.read(ANSWER_BYTES_MAX))
        code = int(body.get("error_code", refused.code))
        message = str(body.get("message") or body.get("detail") or refused.reason)
    except (ValueError, AttributeError, OSError):
        code, message = refused.code, f"The registry answered {refused.code} {refused.reason}."
    return RegistryRefused(refused.code, code, message)


def _reason(failed: Exception) -> str:
    reason = failed.reason if isinstance(failed, urllib.error.URLError) else failed
    return str(getattr(reason, "strerror", None) or reason).lower().rstrip(".")
