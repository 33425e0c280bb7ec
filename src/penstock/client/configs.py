"""Settings of topics, brokers and groups while they run: what each is, who says so, changing it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType

from penstock.client.cluster import ClusterClient, check_answer
from penstock.client.errors import ClientError
from penstock.client.kafka_connection import KafkaConnection
from penstock.protocol.kafka.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from penstock.protocol.kafka.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

_TOPIC, _BROKER, _GROUP = 2, 4, 32
_SET, _DELETE = 0, 1
_DEFAULT = 5
# The broker with this name stands for all of them.
_ALL_BROKERS = ""
_SOURCES = MappingProxyType(
    {
        1: "dynamic topic",
        2: "dynamic broker",
        3: "dynamic default broker",
        4: "static broker",
        _DEFAULT: "default",
        8: "dynamic group",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigValue:
    name: str
    value: str | None
    source: str
    is_default: bool
    # What it would be if nobody had set it; where it comes from a setting of another name, which
    # may count in another unit, as that one says it: `log.retention.hours=168`.
    default: str | None
    is_read_only: bool
    documentation: str


class Resource:
    """Whose settings are meant; exactly one of the four."""

    def __init__(
        self,
        *,
        topic: str | None = None,
        node: int | None = None,
        all_nodes: bool = False,
        group: str | None = None,
    ) -> None:
        assert sum(one is not None for one in (topic, node, group)) + all_nodes == 1
        self.node = node
        self.kind = _TOPIC if topic is not None else _BROKER if group is None else _GROUP
        named = topic if topic is not None else group
        self.name = named if named is not None else _ALL_BROKERS if node is None else str(node)

    def __str__(self) -> str:
        if self.kind == _TOPIC:
            return f"topic {self.name}"
        if self.kind == _GROUP:
            return f"group {self.name}"
        return "all nodes" if self.node is None else f"node {self.node}"


class Configs:
    def __init__(self, connection: KafkaConnection) -> None:
        self._connection = connection

    def all(self, resource: Resource) -> list[ConfigValue]:
        """Every setting of a topic, node or group, by name."""
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=resource.kind,
                    resource_name=resource.name,
                    configuration_keys=None,
                )
            ],
            include_synonyms=True,
            include_documentation=True,
        )
        with self._connection_to(resource) as connection:
            found = connection.ask(request, DescribeConfigsResponse)
        for one in found.results:
            check_answer(f"the settings of {resource}", one.error_code, one.error_message)
        listed = [_value(entry) for one in found.results for entry in one.configs]
        return sorted(listed, key=lambda one: one.name)

    def one(self, resource: Resource, name: str) -> ConfigValue:
        """One setting; for a name that is wrong, the error says which is nearest."""
        listed = {value.name: value for value in self.all(resource)}
        if name not in listed:
            near = get_close_matches(name, listed, n=1, cutoff=0.5)
            hint = f"; nearest is {near[0]}" if near else ""
            raise ClientError(f"There is no setting {name} of {resource}{hint}.")
        return listed[name]

    def alter(
        self, resource: Resource, *, set_to: Mapping[str, str], unset: Iterable[str] = ()
    ) -> None:
        """Change single settings; those not named keep their values."""
        changes = [
            *(AlterableConfig(name=n, config_operation=_SET, value=v) for n, v in set_to.items()),
            *(AlterableConfig(name=n, config_operation=_DELETE, value=None) for n in unset),
        ]
        asked = AlterConfigsResource(
            resource_type=resource.kind, resource_name=resource.name, configs=changes
        )
        request = IncrementalAlterConfigsRequest(resources=[asked])
        found = self._connection.ask(request, IncrementalAlterConfigsResponse)
        for one in found.responses:
            check_answer(f"the settings of {resource}", one.error_code, one.error_message)

    @contextmanager
    def _connection_to(self, resource: Resource) -> Iterator[KafkaConnection]:
        """Only a node itself knows what it was started with."""
        if resource.node is None:
            yield self._connection
            return
        node = ClusterClient(self._connection).view().node(resource.node)
        if not node.is_up or node.endpoint is None:
            raise ClientError(f"Node {node.node} is down, so its settings can't be asked for.")
        address, timeout_s = str(node.endpoint), self._connection.timeout_s
        with KafkaConnection(address, timeout_s=timeout_s) as connection:
            yield connection


def _value(entry: DescribeConfigsResourceResult) -> ConfigValue:
    is_default = entry.config_source == _DEFAULT
    return ConfigValue(
        name=entry.name,
        value=entry.value,
        source=_SOURCES.get(entry.config_source, f"source {entry.config_source}"),
        is_default=is_default,
        default=entry.value if is_default else _default(entry),
        is_read_only=entry.read_only,
        documentation=entry.documentation or "",
    )


def _default(entry: DescribeConfigsResourceResult) -> str | None:
    places: Sequence[tuple[str, str | None]] = [
        (one.name, one.value) for one in entry.synonyms if one.source == _DEFAULT
    ]
    if not places:
        return None
    name, value = places[-1]
    return value if name == entry.name else f"{name}={value}"
