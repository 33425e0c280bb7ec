"""Asks a cluster over HTTP, found by the address of any of its Kafka listeners.

Each node says in its settings where its HTTP door is. Nodes are tried in turn until one accepts a
connection; a request that was sent is never sent again.
"""

import http.client
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote

from penstock.client.cluster import ClusterClient
from penstock.client.configs import Configs, Resource
from penstock.client.connection import CONNECT_TIMEOUT_S, DEFAULT_BOOTSTRAP
from penstock.client.errors import BrokerUnreachable, ClientError
from penstock.client.kafka_connection import KafkaConnection
from penstock.model.endpoint import Endpoint, is_wildcard, parse_endpoint

LISTENER_SETTING: Final = "penstock.http.listener"
_SCHEME: Final = "http://"
ANSWER_BYTES_MAX: Final = 256 * 1024 * 1024
_GOOD: Final = range(200, 300)


class DoorRefused(ClientError):
    """The door answered with a problem document."""

    def __init__(self, status: int, document: Mapping[str, Any]) -> None:
        super().__init__(str(document.get("detail") or f"The HTTP door answered {status}."))
        self.status = status
        self.document = document


class ClusterDoor:
    """One request after the other, each on a connection of its own."""

    def __init__(self, bootstrap: str = DEFAULT_BOOTSTRAP, *, timeout_s: float = 5.0) -> None:
        self._bootstrap = bootstrap
        self._timeout_s = timeout_s
        self._endpoint: Endpoint | None = None

    def ask(
        self, method: str, *path: str, body: object = None, query: str = "", wait_s: float = 0.0
    ) -> Any:
        """The answer as JSON; raises DoorRefused or another ClientError. `wait_s` is how long the
        door itself may take."""
        connection = self._connected()
        try:
            connection.sock.settimeout(self._timeout_s + wait_s)
            headers = {} if body is None else {"content-type": "application/json"}
            data = None if body is None else json.dumps(body)
            target = "/v1/" + "/".join(quote(part, safe="") for part in path)
            target += f"?{query}" if query else ""
            connection.request(method, target, data, headers)
            answer = connection.getresponse()
            return _content(answer.status, answer.read(ANSWER_BYTES_MAX))
        except (OSError, http.client.HTTPException) as error:
            detail = f"The HTTP door at {self._endpoint} did not answer: {error}."
            raise BrokerUnreachable(detail) from None
        finally:
            connection.close()

    def _connected(self) -> http.client.HTTPConnection:
        problem = "no node has one"
        known = () if self._endpoint is None else (self._endpoint,)
        for endpoint in (*known, *self._endpoints()):
            connection = http.client.HTTPConnection(
                endpoint.host, endpoint.port, timeout=min(self._timeout_s, CONNECT_TIMEOUT_S)
            )
            try:
                connection.connect()
            except OSError as error:
                problem = f"{endpoint} does not answer: {error}"
            else:
                self._endpoint = endpoint
                return connection
        detail = f"The cluster at {self._bootstrap} has no HTTP door that can be used: {problem}."
        raise BrokerUnreachable(detail)

    def _endpoints(self) -> Iterator[Endpoint]:
        with KafkaConnection(self._bootstrap, timeout_s=self._timeout_s) as kafka:
            configs = Configs(kafka)
            for node in ClusterClient(kafka).view().nodes:
                if not node.is_up or node.endpoint is None:
                    continue
                found = {each.name: each.value for each in configs.all(Resource(node=node.node))}
                address = found.get(LISTENER_SETTING)
                if address:
                    yield _reachable(parse_endpoint(address.removeprefix(_SCHEME)), node.endpoint)


def _reachable(endpoint: Endpoint, kafka: Endpoint) -> Endpoint:
    """A door on all addresses of a machine is on the one that clients know."""
    return Endpoint(kafka.host, endpoint.port) if is_wildcard(endpoint.host) else endpoint


def _content(status: int, data: bytes) -> Any:
    try:
        content = json.loads(data) if data else None
    except ValueError:
        raise ClientError(f"The HTTP door answered {status} without JSON.") from None
    if status not in _GOOD:
        raise DoorRefused(status, content if isinstance(content, dict) else {})
    return content
