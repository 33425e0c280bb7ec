"""Keeps web pages away from the door.

A page of any origin can make its visitor's browser send requests to the visitor's own machine. It
can't read the answers, but a request alone may write. So:

- An `Origin`, if there is one, must be the host that was asked: the page is one of this door.
- The `Host` must be an address, localhost, or a name from the settings. A page whose name resolves
  to this machine (DNS rebinding) is of the same origin, but it can't hide its name.
- No answer allows other origins (CORS), so browsers ask first before they send what a form can't.
- Browsers say where a request comes from (`Sec-Fetch-Site`). From elsewhere a page may link to what
  only shows something, and to nothing else.
- What changes something needs a content type that a form can't send. `text/plain` is one that it
  can: so it is taken only with the header `Penstock-Text`, which a page can't add without asking.
"""

import re
from collections.abc import Collection
from urllib.parse import urlsplit

from penstock.frontdoor.http.problems import Problem
from penstock.frontdoor.http.requests import TEXT_TYPE, Request
from penstock.frontdoor.http.routes import Route

TEXT_HEADER = "penstock-text"
_IPV4 = re.compile(r"\d{1,3}(\.\d{1,3}){3}", re.ASCII)
_HOST = re.compile(r"(\[[0-9a-fA-F:.%]+\]|[^:\[\]/@]+)(?::\d{1,5})?", re.ASCII)


class Guards:
    def __init__(self, hosts: Collection[str]) -> None:
        """`hosts` are names under which clients may reach this door, beside localhost."""
        self._names = frozenset(hosts) | {"localhost"}

    def check_source(self, request: Request) -> None:
        """Raises Problem for a request that a foreign page may have sent."""
        host = request.headers.get("host", "")
        match = _HOST.fullmatch(host)
        if match is None or not self._is_known(match[1].lower().rstrip(".")):
            detail = (
                f"The Host of the request is {host[:200]!r}, which is not a name of this node; "
                f"add it with --http-hosts if it should be."
            )
            raise Problem(421, detail, reason="unknown_host")
        origin = request.headers.get("origin")
        if origin is not None and urlsplit_host(origin) != host.lower():
            detail = f"Pages of {origin[:200]!r} may not use this node."
            raise Problem(403, detail, reason="foreign_origin")

    def _is_known(self, name: str) -> bool:
        is_address = name.startswith("[") or _IPV4.fullmatch(name) is not None
        return is_address or name in self._names or name.endswith(".localhost")

    @staticmethod
    def check_site(request: Request, route: Route) -> None:
        """Raises Problem for what a page of another origin asks for, unless it is a link to
        something that only shows."""
        if request.headers.get("sec-fetch-site") not in ("cross-site", "same-site"):
            return
        is_link = request.headers.get("sec-fetch-mode") == "navigate"
        if not is_link or route.is_change:
            raise Problem(403, "Pages of other origins may not use this node.", reason="foreign")

    @staticmethod
    def check_body_type(request: Request, route: Route) -> None:
        """Raises Problem for a change whose body is of a type that the route does not take."""
        if not route.is_change or not route.bodies:
            return
        given = request.content_type
        if given not in route.bodies and not _is_binary_event(request, route):
            known = ", ".join(each for each in route.bodies if "/" in each)
            detail = f"The Content-Type is {given!r}, but must be one of {known}."
            raise Problem(415, detail, reason="wrong_content_type")
        if given == TEXT_TYPE and TEXT_HEADER not in request.headers:
            detail = "Text is taken only with the header 'Penstock-Text: yes'; see /docs."
            raise Problem(415, detail, reason="wrong_content_type")


def _is_binary_event(request: Request, route: Route) -> bool:
    """A CloudEvent in binary mode has a content type of its own, and headers that no form has."""
    return "cloudevents" in route.bodies and "ce-specversion" in request.headers


def urlsplit_host(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""
