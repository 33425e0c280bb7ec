"""Where a door listens or is reached."""

import re
from typing import NamedTuple

LOOPBACK = "127.0.0.1"
PORT_MAX = 65_535


class Endpoint(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class EndpointError(ValueError):
    """Why a text is not an address; it continues a sentence that names the text."""


_ENDPOINT = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]+(?:%[\w.-]+)?)\]|(?P<host>[A-Za-z0-9_](?:[\w.-]*\w)?\.?)?)"
    r":(?P<port>[0-9]{1,9})",
    re.ASCII,
)


def parse_endpoint(text: str) -> Endpoint:
    """HOST:PORT with an IPv6 host in brackets; no host means loopback; raises EndpointError."""
    match = _ENDPOINT.fullmatch(text.strip())
    if match is None:
        raise EndpointError("it must be HOST:PORT, as in 127.0.0.1:9092 or [::1]:9092")
    port = int(match["port"])
    if port > PORT_MAX:
        raise EndpointError(f"its port must be from 0 to {PORT_MAX}")
    if match["v6"] is not None and not _is_ipv6(match["v6"]):
        raise EndpointError("the part in brackets must be an IPv6 address, as in [::1]:9092")
    return Endpoint(match["v6"] or match["host"] or LOOPBACK, port)


def is_wildcard(host: str) -> bool:
    """Whether binding to `host` means every network interface."""
    if host == LOOPBACK:
        return False
    # Imported here because the default start never needs it.
    import ipaddress

    if not host.strip("0."):
        return True
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return address.is_unspecified or (mapped is not None and mapped.is_unspecified)


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to `host`; a name is believed only if it says so."""
    if host == LOOPBACK or host.lower().rstrip(".") == "localhost":
        return True
    import ipaddress

    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return address.is_loopback or (mapped is not None and mapped.is_loopback)


def _is_ipv6(host: str) -> bool:
    import ipaddress

    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return True
