"""Finds the HTTP doors of a cluster by the address of any of its Kafka listeners.

Each node says in its settings where its HTTP door is.
"""

import os
from collections.abc import Iterator
from functools import partial
from typing import Final
from urllib.parse import quote

from penstock.client.cluster import ClusterClient
from penstock.client.configs import Configs, Resource
from penstock.client.connection import bootstrap_or_default
from penstock.client.errors import ClientError
from penstock.client.http_door import HttpDoor, Place
from penstock.client.kafka_connection import KafkaConnection
from penstock.model.endpoint import is_wildcard, parse_endpoint

LISTENER_SETTING: Final = "penstock.http.listener"
# Names HTTP doors themselves, for programs that can't reach a Kafka listener.
HTTP_VARIABLE: Final = "PENSTOCK_HTTP_ADDRESS"
_SCHEME: Final = "http://"


def open_door(*, bootstrap: str = "", http: str = "", is_repeatable: bool = False) -> HttpDoor:
    """The doors at `http`, or those of the cluster at `bootstrap`; otherwise what the environment
    names, and last the cluster on this machine. Addresses are HOST:PORT, separated by commas."""
    given = http or ("" if bootstrap else os.environ.get(HTTP_VARIABLE, ""))
    if given:
        return HttpDoor.at(given, is_repeatable=is_repeatable)
    where = bootstrap_or_default(bootstrap)
    name = f"HTTP door of the cluster at {where} answers"
    return HttpDoor(partial(find_doors, where), name=name, is_repeatable=is_repeatable)


def path_of(*parts: str) -> str:
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


def find_doors(bootstrap: str, timeout_s: float) -> list[Place]:
    """The doors of all nodes that are up; raises ClientError if nobody can be asked."""
    with KafkaConnection(bootstrap, timeout_s=timeout_s) as kafka:
        return list(_doors(kafka))


def _doors(kafka: KafkaConnection) -> Iterator[Place]:
    configs = Configs(kafka)
    for node in ClusterClient(kafka).view().nodes:
        if not node.is_up or node.endpoint is None:
            continue
        try:
            found = {each.name: each.value for each in configs.all(Resource(node=node.node))}
        except ClientError:
            # It went down a moment ago; the others can be asked.
            continue
        address = found.get(LISTENER_SETTING)
        if address:
            host, port = parse_endpoint(address.removeprefix(_SCHEME))
            # A door on all addresses of a machine is on the one that clients know.
            yield Place(node.endpoint.host if is_wildcard(host) else host, port)
