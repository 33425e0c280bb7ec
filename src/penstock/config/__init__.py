"""A node's settings: typed, checked, and each with the place it came from.

One table, `SETTINGS`, defines every setting. The flags of `penstock up`, the environment
variables, the keys of a settings file, `penstock config show` and the reference page all follow
from it. A flag beats the environment, which beats the file, which beats the default.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any

from penstock.config import values
from penstock.config.values import OFF as OFF
from penstock.model.endpoint import (
    LOOPBACK,
    PORT_MAX,
    Endpoint,
    is_loopback,
    is_wildcard,
)
from penstock.model.ids import BrokerId

# Several nodes on one host keep clear of each other: node 1 listens on 9192, node 2 on 9292.
PORTS_PER_NODE = 100
DOOR_PORTS: Mapping[str, int] = MappingProxyType(
    {"kafka": 9092, "grpc": 9093, "http": 9094, "peer": 9095}
)
# Unless they are given, their ports keep their distance to the Kafka port. They may be turned off.
FOLLOWING_DOORS = ("grpc", "http")
DEFAULT = "default"
# What is shown instead of a secret.
HIDDEN = "(hidden)"
# Kafka's name for what --rack says.
RACK_SETTING = "broker.rack"

_FIRST_NODE = BrokerId(0)
_DOORS: Mapping[str, Endpoint] = MappingProxyType(
    {door: Endpoint(LOOPBACK, port) for door, port in DOOR_PORTS.items()}
)


class LogFormat(StrEnum):
    """`auto` is readable text on a terminal and elsewhere; JSON is only given when asked for."""

    AUTO = "auto"
    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class SettingsError(ValueError):
    """A setting that can't be used; its text is one sentence for the person who set it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One row of the table of settings."""

    name: str
    form: str
    default: str
    help: str
    parse: Callable[[object], object]
    flag: str
    environment: str
    in_file: bool = True
    is_secret: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of one node, as `penstock up` and `penstock.testing` hand them to the server."""

    data_dir: Path = Path("penstock-data")
    node: BrokerId = _FIRST_NODE
    kafka: Endpoint = _DOORS["kafka"]
    # None where a listener is turned off.
    grpc: Endpoint | None = _DOORS["grpc"]
    http: Endpoint | None = _DOORS["http"]
    # Names under which clients reach the HTTP listener, beside localhost and addresses.
    http_hosts: tuple[str, ...] = ()
    peer: Endpoint = _DOORS["peer"]
    # What clients connect to; None is the address that was bound.
    advertise: Endpoint | None = None
    # Its members by their peer addresses, this node too; empty where it stands alone or joins one.
    cluster: Mapping[BrokerId, Endpoint] = field(default_factory=lambda: MappingProxyType({}))
    # The peer address of any member of a running cluster.
    join: Endpoint | None = None
    # What other nodes connect to; None is the listed or else the bound address.
    advertise_peer: Endpoint | None = None
    rack: str | None = None
    peer_secret: str | None = field(default=None, repr=False)
    disk_timeout_ms: int = 3000
    config: Path | None = None
    log_format: LogFormat = LogFormat.AUTO
    log_level: LogLevel = LogLevel.INFO
    scrub_hours: int = 168
    # Whether the node counts what it does, for /metrics.
    metrics: bool = True
    # Whether spans of delivery attempts are sent to an OpenTelemetry collector.
    tracing: bool = False
    # Kafka's broker settings by Kafka's names, unchecked here: the cluster knows their meaning.
    broker: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    # Where a value came from, by setting; `broker` has one entry per key, "broker.num.partitions".
    sources: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def source(self, name: str) -> str:
        return self.sources.get(name, DEFAULT)

    def is_explicit(self, name: str) -> bool:
        return self.source(name) != DEFAULT

    def advertised(self, bound: Endpoint) -> Endpoint:
        """The address for clients, given the bound one; port 0 stands for the bound port."""
        if self.advertise is None:
            return bound
        return Endpoint(self.advertise.host, self.advertise.port or bound.port)

    def advertised_peer(self, bound: Endpoint) -> Endpoint:
        """The address for other nodes, given the bound one; port 0 stands for the bound port."""
        given = self.advertise_peer or self.cluster.get(self.node)
        if given is None:
            return bound
        return Endpoint(given.host, given.port or bound.port)

    def opens_peer_door(self) -> bool:
        """Whether other nodes are to connect; a node on its own needs no further port."""
        return bool(self.cluster) or self.join is not None or self.is_explicit("peer")

    def other_doors(self) -> dict[str, Endpoint]:
        """Listeners that are neither for Kafka's clients nor for other nodes, by door."""
        doors = {door: getattr(self, door) for door in FOLLOWING_DOORS}
        return {door: endpoint for door, endpoint in doors.items() if endpoint is not None}

    def effective(self) -> list[tuple[str, str, str]]:
        """Every setting as (name, value, source), broker settings one by one."""
        settings = [
            (setting.name, _shown(setting, getattr(self, setting.name)), self.source(setting.name))
            for setting in SETTINGS
            if setting.name != "broker"
        ]
        broker = [(f"broker.{key}", value) for key, value in sorted(self.broker.items())]
        return [*settings, *((name, value, self.source(name)) for name, value in broker)]


def load(flags: Mapping[str, object], environment: Mapping[str, str]) -> Settings:
    """The settings of a node; `flags` holds what was given, by the name of the setting.

    Raises SettingsError with one sentence that names setting, source and value.
    """
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    broker: dict[str, str] = {}
    for source_of, given in _layers(flags, environment):
        for setting in SETTINGS:
            if setting.name not in given:
                continue
            raw, source = given[setting.name], source_of(setting)
            parsed = _parse(setting, raw, source)
            if setting.name == "broker":
                assert isinstance(parsed, dict)
                broker.update(parsed)
                sources.update({f"broker.{key}": source for key in parsed})
            else:
                values[setting.name] = parsed
                sources[setting.name] = source
    _listen_where_listed(values, sources)
    _add_default_ports(values, sources)
    _unite_racks(values, broker, sources)
    made = Settings(
        **values, broker=MappingProxyType(broker), sources=MappingProxyType(dict(sources))
    )
    _check_together(made)
    return made


def _layers(
    flags: Mapping[str, object], environment: Mapping[str, str]
) -> Iterable[tuple[Callable[[Setting], str], Mapping[str, object]]]:
    """What each source gives, weakest first, with a function that names the source."""
    # An empty variable is how compose files and CI systems spell "not set".
    from_environment = {
        setting.name: environment[setting.environment]
        for setting in SETTINGS
        if environment.get(setting.environment)
    }
    from_flags = {name: raw for name, raw in flags.items() if raw is not None and raw != ()}
    file = from_flags.get("config", from_environment.get("config"))
    if file is not None:
        by = "flag --config" if "config" in from_flags else "environment PENSTOCK_CONFIG"
        path = _parse(_BY_NAME["config"], file, by)
        assert isinstance(path, Path)
        yield (lambda setting: f"file {path}"), _read_file(path, by)
    yield (lambda setting: f"environment {setting.environment}"), from_environment
    yield (lambda setting: f"flag {setting.flag}"), from_flags


def _parse(setting: Setting, raw: object, source: str) -> object:
    try:
        return setting.parse(raw)
    except values.Unusable as problem:
        quoted = HIDDEN if setting.is_secret else _quoted(raw)
        raise SettingsError(
            f"Setting {setting.name} from {source} is {quoted}, but {problem}."
        ) from None


def _quoted(raw: object) -> str:
    if isinstance(raw, tuple) and len(raw) == 1:
        raw = raw[0]
    text = repr(raw)
    return text if len(text) <= 200 else f"{text[:200]}..."


def _listen_where_listed(values: dict[str, object], sources: dict[str, str]) -> None:
    """A listed node listens where the list says, unless it was set otherwise."""
    listed = values.get("cluster")
    if isinstance(listed, Mapping) and "peer" not in values:
        own = listed.get(values.get("node", _FIRST_NODE))
        if own is not None:
            values["peer"], sources["peer"] = own, sources["cluster"]


def _unite_racks(
    values: dict[str, object], broker: dict[str, str], sources: dict[str, str]
) -> None:
    """--rack and Kafka's broker.rack are one setting with two names."""
    key, rack, kafkas = f"broker.{RACK_SETTING}", values.get("rack"), broker.get(RACK_SETTING)
    if rack is None and kafkas:
        values["rack"], sources["rack"] = kafkas, sources[key]
    elif rack is not None and kafkas and kafkas != rack:
        raise SettingsError(
            f"Setting rack from {sources['rack']} is {rack!r}, but {RACK_SETTING} from "
            f"{sources[key]} is {kafkas!r}."
        )
    elif rack is not None:
        broker[RACK_SETTING] = str(rack)
        sources.setdefault(key, sources["rack"])


def _add_default_ports(values: dict[str, object], sources: Mapping[str, str]) -> None:
    node = values.get("node", 0)
    assert isinstance(node, int)
    shift = PORTS_PER_NODE * node
    fits = max(DOOR_PORTS.values()) + shift <= PORT_MAX
    if not fits and "kafka" not in values:
        raise SettingsError(
            f"Setting node from {sources['node']} is {node}, which is too large for a default "
            f"port, so give the Kafka listener's address with --kafka HOST:PORT."
        )
    kafka = values.get("kafka")
    for door, port in DOOR_PORTS.items():
        # Port 0 is a free one: a large node number leaves no fixed default for the other doors.
        default = port + shift if fits else 0
        if isinstance(kafka, Endpoint) and door in FOLLOWING_DOORS:
            # So that two nodes with Kafka ports of their own need no other flag.
            default = _beside(kafka.port, port - DOOR_PORTS["kafka"])
        values.setdefault(door, Endpoint(LOOPBACK, default))


def _beside(kafka_port: int, distance: int) -> int:
    port = kafka_port + distance
    return port if kafka_port and port <= PORT_MAX else 0


def _check_together(settings: Settings) -> None:
    """Refuse values that are fine alone and wrong together."""
    if is_wildcard(settings.kafka.host) and settings.advertise is None:
        raise SettingsError(
            f"Setting kafka from {settings.source('kafka')} is '{settings.kafka}', which listens "
            f"on every interface, so say with --advertise HOST:PORT where clients connect."
        )
    _check_cluster(settings)
    _check_peer_secret(settings)
    taken: dict[Endpoint, str] = {}
    for door in DOOR_PORTS:
        endpoint: Endpoint | None = getattr(settings, door)
        if endpoint is None or endpoint.port == 0 or not settings.is_explicit(door):
            continue
        if endpoint in taken:
            raise SettingsError(
                f"Setting {door} from {settings.source(door)} is '{endpoint}', but "
                f"{taken[endpoint]} from {settings.source(taken[endpoint])} is the same address."
            )
        taken[endpoint] = door


def _check_cluster(settings: Settings) -> None:
    if settings.cluster and settings.join is not None:
        raise SettingsError(
            f"Setting join from {settings.source('join')} can't be used with cluster from "
            f"{settings.source('cluster')}: a node is either listed or joins."
        )
    if settings.cluster and settings.node not in settings.cluster:
        raise SettingsError(
            f"Setting cluster from {settings.source('cluster')} lists nodes "
            f"{', '.join(str(node) for node in settings.cluster)}, but this is node "
            f"{settings.node}, so give its number with --node or add it to the list."
        )
    advertised = settings.advertised_peer(settings.peer)
    if settings.opens_peer_door() and is_wildcard(advertised.host):
        raise SettingsError(
            f"Setting peer from {settings.source('peer')} is '{settings.peer}', which listens on "
            f"every interface, so say with --advertise-peer HOST:PORT where other nodes connect."
        )


def _check_peer_secret(settings: Settings) -> None:
    """Anyone who reaches the peer door without a secret is a member, so it must be nobody else."""
    if settings.peer_secret is not None:
        return
    reached = [("peer", settings.peer), ("join", settings.join)]
    reached += [("cluster", endpoint) for endpoint in settings.cluster.values()]
    for name, endpoint in [*reached, ("advertise_peer", settings.advertise_peer)]:
        if endpoint is not None and not is_loopback(endpoint.host):
            raise SettingsError(
                f"Setting {name} from {settings.source(name)} has '{endpoint}', which is beyond "
                f"this machine, so give all nodes one secret with PENSTOCK_PEER_SECRET or "
                f"--peer-secret."
            )


def _read_file(path: Path, by: str) -> dict[str, object]:
    """The settings in a file by name; anything the table does not know is refused."""
    content = _parse_file(path, by)
    if not isinstance(content, dict):
        raise SettingsError(f"File {path} from {by} must hold settings by name.")
    known = {setting.name for setting in SETTINGS if setting.in_file}
    given: dict[str, object] = {}
    for key, raw in content.items():
        name = str(key).replace("-", "_")
        if name not in known:
            raise SettingsError(f"File {path} from {by} {_unknown(str(key), known)}.")
        if name in given:
            raise SettingsError(f"File {path} from {by} gives the setting {name} twice.")
        given[name] = raw
    return given


def _parse_file(path: Path, by: str) -> object:
    # Imported here because most nodes start without a file.
    import tomllib

    import yaml

    try:
        text = path.read_text(encoding="utf-8")
        content = tomllib.loads(text) if path.suffix == ".toml" else yaml.safe_load(text)
        return {} if content is None else content
    except OSError as error:
        problem = (error.strerror or "it can't be read").lower()
        raise SettingsError(f"File {path} from {by} can't be read: {problem}.") from None
    except (ValueError, yaml.YAMLError) as error:
        problem = " ".join(str(error).split()).rstrip(".")
        raise SettingsError(f"File {path} from {by} can't be parsed: {problem}.") from None


def _unknown(key: str, known: Iterable[str]) -> str:
    import difflib

    near = difflib.get_close_matches(key, list(known), n=1, cutoff=0.5)
    hint = f"nearest is {near[0]!r}" if near else f"known are {', '.join(sorted(known))}"
    return f"has an unknown setting {key!r} ({hint})"


def _shown(setting: Setting, value: object) -> str:
    if value is None:
        return OFF if setting.name in FOLLOWING_DOORS else ""
    if setting.name == "http_hosts":
        assert isinstance(value, tuple)
        return ",".join(value)
    if setting.is_secret:
        return HIDDEN
    if isinstance(value, bool):
        return values.ON if value else OFF
    if isinstance(value, Mapping):
        return ",".join(f"{node}={endpoint}" for node, endpoint in value.items())
    return str(value)


def _setting(
    name: str, form: str, default: str, parse: Callable[[object], object], help_text: str
) -> Setting:
    word = "set" if name == "broker" else name
    return Setting(
        name=name,
        form=form,
        default=default,
        help=help_text,
        parse=parse,
        flag=f"--{word.replace('_', '-')}",
        environment=f"PENSTOCK_{word.upper()}",
        in_file=name != "config",
        is_secret=name == "peer_secret",
    )


def _door(name: str, help_text: str) -> Setting:
    default = f"{LOOPBACK}:{DOOR_PORTS[name]}"
    if name in FOLLOWING_DOORS:
        parse = values.parse_optional_endpoint
        return _setting(name, "HOST:PORT|off", default, parse, help_text)
    return _setting(name, "HOST:PORT", default, values.parse_endpoint_text, help_text)


SETTINGS: tuple[Setting, ...] = (
    _setting(
        "data_dir", "DIR", "penstock-data", values.parse_path, "Where the node keeps its data."
    ),
    _setting(
        "node", "N", "0", values.parse_node, "The node's number, which is its Kafka broker id."
    ),
    _door("kafka", "Where Kafka clients connect; port 0 picks a free one."),
    _door("grpc", "Where gRPC clients connect, or off; by default 1 above the Kafka port."),
    _door("http", "Where HTTP clients connect, or off; by default 2 above the Kafka port."),
    _setting(
        "http_hosts",
        "NAME,...",
        "",
        values.parse_hosts,
        "Host names that HTTP clients may use for this node, besides localhost and addresses.",
    ),
    _door("peer", "Where other nodes connect."),
    _setting(
        "advertise",
        "HOST:PORT",
        "",
        values.parse_advertise,
        "The Kafka address for clients; by default the one the node listens on.",
    ),
    _setting(
        "cluster",
        "N=HOST:PORT,...",
        "",
        values.parse_cluster,
        "Peer addresses of all members, including this node.",
    ),
    _setting(
        "join",
        "HOST:PORT",
        "",
        values.parse_reached,
        "Join the cluster of the node with this peer address.",
    ),
    _setting(
        "advertise_peer",
        "HOST:PORT",
        "",
        values.parse_advertise,
        "The peer address for other nodes; by default the listed one, or the one it listens on.",
    ),
    _setting(
        "rack",
        "NAME",
        "",
        values.parse_text,
        "The node's rack or zone; copies are spread over racks.",
    ),
    _setting(
        "peer_secret",
        "TEXT",
        "",
        values.parse_text,
        "The secret that all nodes share; needed beyond loopback, and never shown.",
    ),
    _setting(
        "disk_timeout_ms",
        "MS",
        "3000",
        values.parse_disk_timeout,
        "How long a leader's disk may hang before the leader steps down.",
    ),
    _setting("config", "FILE", "", values.parse_config_path, "A TOML or YAML file with settings."),
    _setting(
        "log_format",
        "auto|text|json",
        "auto",
        values.parse_choice(LogFormat),
        "Format of log lines.",
    ),
    _setting(
        "log_level",
        "debug|info|warning|error",
        "info",
        values.parse_choice(LogLevel),
        "The lowest level to log.",
    ),
    _setting(
        "scrub_hours",
        "N",
        "168",
        values.parse_hours,
        "Check all data for damage every N hours; 0 never.",
    ),
    _setting(
        "metrics",
        "on|off",
        "on",
        values.parse_switch,
        "Whether the node counts what it does and shows it at /metrics.",
    ),
    _setting(
        "tracing",
        "on|off",
        "off",
        values.parse_switch,
        "Whether the node sends traces of delivery attempts to an OpenTelemetry collector.",
    ),
    _setting(
        "broker",
        "NAME=VALUE",
        "",
        values.parse_broker,
        "A broker setting by Kafka's name; may be repeated.",
    ),
)
_BY_NAME: Mapping[str, Setting] = MappingProxyType({setting.name: setting for setting in SETTINGS})
