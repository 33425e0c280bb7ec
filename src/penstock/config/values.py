"""Values of settings: each function takes what a flag, variable or file gives, or says why not."""

import re
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType

from penstock.model.endpoint import Endpoint, EndpointError, is_wildcard, parse_endpoint
from penstock.model.ids import BrokerId

NODE_MAX = 2**31 - 1
CLUSTER_NODES_MAX = 1_000
# The least and the most that can be asked for; less would take any busy disk for one that hangs.
DISK_TIMEOUT_MS = (500, 600_000)
SCRUB_HOURS_MAX = 24 * 366
HTTP_HOSTS_MAX = 100
# The word for a door that shall stay shut.
OFF = "off"
ON = "on"

_HOST_NAME = re.compile(r"[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?", re.ASCII)


class Unusable(ValueError):
    """Why one value can't be used; `load` adds which setting it is and where it came from."""


def parse_text(raw: object) -> str:
    if not isinstance(raw, str | Path):
        raise Unusable("it must be text")
    text = str(raw).strip()
    if not text or "\0" in text:
        raise Unusable("it must not be empty or hold a null character")
    return text


def parse_path(raw: object) -> Path:
    try:
        return Path(parse_text(raw)).expanduser()
    except RuntimeError:
        raise Unusable("the home directory (~) is not known") from None


def parse_config_path(raw: object) -> Path:
    path = parse_path(raw)
    if path.suffix not in (".toml", ".yaml", ".yml"):
        raise Unusable("its name must end in .toml, .yaml or .yml")
    return path


def _whole_number(raw: object, least: int, most: int) -> int:
    is_number = isinstance(raw, int) and not isinstance(raw, bool)
    is_digits = isinstance(raw, str) and re.fullmatch(r"\s*[0-9]{1,10}\s*", raw)
    if not (is_number or is_digits) or not least <= int(str(raw)) <= most:
        raise Unusable(f"it must be a whole number from {least} to {most}")
    return int(str(raw))


def parse_node(raw: object) -> BrokerId:
    return BrokerId(_whole_number(raw, 0, NODE_MAX))


def parse_disk_timeout(raw: object) -> int:
    return _whole_number(raw, *DISK_TIMEOUT_MS)


def parse_hours(raw: object) -> int:
    return _whole_number(raw, 0, SCRUB_HOURS_MAX)


def parse_switch(raw: object) -> bool:
    """YAML reads the words "on" and "off" as true and false."""
    if isinstance(raw, bool):
        return raw
    text = parse_text(raw).lower()
    if text not in (ON, OFF):
        raise Unusable(f"it must be {ON} or {OFF}")
    return text == ON


def parse_endpoint_text(raw: object) -> Endpoint:
    try:
        return parse_endpoint(parse_text(raw))
    except EndpointError as problem:
        raise Unusable(str(problem)) from None


def parse_optional_endpoint(raw: object) -> Endpoint | None:
    """As an endpoint, or None for "off"; YAML reads that word as false."""
    if raw is False or (isinstance(raw, str) and raw.strip().lower() == OFF):
        return None
    return parse_endpoint_text(raw)


def parse_hosts(raw: object) -> tuple[str, ...]:
    """Names of hosts, from a list or from text with commas."""
    given = raw if isinstance(raw, list) else parse_text(raw).split(",")
    hosts = tuple(parse_text(host).lower().rstrip(".") for host in given)
    if len(hosts) > HTTP_HOSTS_MAX:
        raise Unusable(f"it may list at most {HTTP_HOSTS_MAX} names")
    for host in hosts:
        if not _HOST_NAME.fullmatch(host):
            raise Unusable(f"{host!r} can't be the name of a host; leave its port out")
    return hosts


def parse_advertise(raw: object) -> Endpoint:
    endpoint = parse_endpoint_text(raw)
    if is_wildcard(endpoint.host):
        raise Unusable("clients can't connect to a wildcard address")
    return endpoint


def parse_reached(raw: object) -> Endpoint:
    """An address of another node, which has to be complete."""
    endpoint = parse_advertise(raw)
    if endpoint.port == 0:
        raise Unusable("clients can't connect to port 0")
    return endpoint


def parse_cluster(raw: object) -> Mapping[BrokerId, Endpoint]:
    """Peer addresses by node from a table, or from text as in 1=a:9195,2=b:9295."""
    members: dict[BrokerId, Endpoint] = {}
    for number, address in _members(raw):
        node, endpoint = parse_node(number), parse_reached(address)
        if node in members:
            raise Unusable(f"it lists node {node} twice")
        if endpoint in members.values():
            raise Unusable(f"it gives two nodes the address {endpoint}")
        members[node] = endpoint
    if len(members) > CLUSTER_NODES_MAX:
        raise Unusable(f"it may list at most {CLUSTER_NODES_MAX:,} nodes")
    return MappingProxyType(dict(sorted(members.items())))


def _members(raw: object) -> Iterable[tuple[object, object]]:
    if isinstance(raw, dict):
        yield from raw.items()
        return
    for pair in parse_text(raw).split(","):
        number, equals, address = pair.partition("=")
        if not equals:
            raise Unusable("each member must be NODE=HOST:PORT, as in 1=10.0.0.1:9195")
        yield number, address


def parse_choice(choices: type[StrEnum]) -> Callable[[object], StrEnum]:
    def parse(raw: object) -> StrEnum:
        try:
            return choices(parse_text(raw).lower())
        except ValueError:
            raise Unusable(f"it must be one of {', '.join(choices)}") from None

    return parse


def parse_broker(raw: object) -> dict[str, str]:
    """Kafka's broker settings from a table, from flags (a tuple), or from one variable."""
    if isinstance(raw, dict):
        return dict(_flattened(raw, ""))
    pairs = raw if isinstance(raw, tuple) else _split_pairs(parse_text(raw))
    parsed = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not _BROKER_KEY.fullmatch(key.strip()):
            raise Unusable("each broker setting must be NAME=VALUE, as in num.partitions=3")
        parsed[key.strip()] = value.strip()
    return parsed


_BROKER_KEY = re.compile(r"[A-Za-z][\w.-]*", re.ASCII)


def _split_pairs(text: str) -> list[str]:
    """Cut at commas; a piece without "=" still belongs to the value before it, which is a list."""
    pairs: list[str] = []
    for piece in text.split(","):
        if "=" not in piece and pairs:
            pairs[-1] += f",{piece}"
        elif piece.strip():
            pairs.append(piece)
    return pairs


def _flattened(table: Mapping[object, object], prefix: str) -> Iterable[tuple[str, str]]:
    """TOML reads the key num.partitions as a table in a table; the name is put together again."""
    for key, value in table.items():
        name = f"{prefix}{key}"
        if not _BROKER_KEY.fullmatch(name):
            raise Unusable(f"{name!r} can't be the name of a broker setting")
        if isinstance(value, dict):
            yield from _flattened(value, f"{name}.")
        else:
            yield name, _plain(value)


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(_plain(one) for one in value)
    if isinstance(value, str | int | float):
        return str(value)
    raise Unusable("each broker setting must be text, a number, true, false or a list")
