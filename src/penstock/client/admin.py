"""`Admin`: a cluster's topics, settings, groups, queues and offsets."""

from collections.abc import Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import confluent_kafka
from confluent_kafka import admin as kafka_admin

from penstock.client.configs import Configs
from penstock.client.connection import (
    ANSWER_TIMEOUT_S,
    bootstrap_or_default,
    check_reachable,
    librdkafka_settings,
)
from penstock.client.errors import ClientError, from_kafka, no_answer, reason_of
from penstock.client.groups import Groups
from penstock.client.kafka_connection import KafkaConnection
from penstock.client.offsets import Offsets
from penstock.client.queues import Queues
from penstock.client.topics import Topics

# librdkafka looks for a new controller only when it refreshes what it knows, which by default
# happens every five minutes.
_IMPATIENT = {"topic.metadata.refresh.interval.ms": 1_000}


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerNode:
    node: int
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDescription:
    cluster_id: str
    controller: int
    nodes: tuple[BrokerNode, ...]


class Admin:
    """`topics`, `settings`, `groups`, `queues` and `offsets` of a cluster.

        with Admin() as admin:
            admin.topics.create("readings", partitions=3, if_missing=True)
            print(admin.groups.describe("controllers").lag)

    Every call raises ClientError with one sentence for what is wrong.
    """

    def __init__(
        self,
        bootstrap: str | None = None,
        *,
        timeout_s: float = ANSWER_TIMEOUT_S,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.bootstrap = bootstrap_or_default(bootstrap)
        self.timeout_s = timeout_s
        check_reachable(self.bootstrap)
        self._settings = librdkafka_settings(self.bootstrap, {**_IMPATIENT, **(options or {})})
        self.client = _make(self._settings)
        self.topics = Topics(self)
        self.offsets = Offsets(self)
        self.groups = Groups(self, self.offsets)
        self.queues = Queues(self.bootstrap, timeout_s=timeout_s)
        self._connection = KafkaConnection(self.bootstrap, timeout_s=timeout_s)
        self.settings = Configs(self._connection)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connections; nothing else has to be ended."""
        self._connection.close()

    def reconnect(self) -> None:
        self.client = _make(self._settings)

    def cluster(self) -> ClusterDescription:
        """The cluster's id, its nodes, and which of them is the controller."""
        found = self.answer(
            self.client.describe_cluster(request_timeout=self.timeout_s), "the description"
        )
        return ClusterDescription(
            cluster_id=str(found.cluster_id),
            controller=found.controller.id if found.controller else -1,
            nodes=tuple(
                BrokerNode(node=one.id, host=one.host, port=one.port) for one in found.nodes
            ),
        )

    def answer(self, future: "Future[Any]", what: str) -> Any:
        try:
            # librdkafka keeps to its own time limit; ours is for the case that it does not.
            return future.result(self.timeout_s + 2.0)
        except confluent_kafka.KafkaException as error:
            raise from_kafka(error.args[0], what=what, bootstrap=self.bootstrap) from None
        except FutureTimeout:
            raise no_answer(self.bootstrap, f"no answer within {self.timeout_s:g} s") from None
        except ValueError as error:
            raise ClientError(f"The broker refused {what}: {str(error).rstrip('.')}.") from None

    def metadata(self) -> Any:
        try:
            return self.client.list_topics(timeout=self.timeout_s)
        except confluent_kafka.KafkaException as error:
            raise from_kafka(
                error.args[0], what="the list of topics", bootstrap=self.bootstrap
            ) from None


def _make(settings: dict[str, Any]) -> kafka_admin.AdminClient:
    try:
        return kafka_admin.AdminClient(settings)
    except confluent_kafka.KafkaException as error:
        raise ClientError(f"The client can't be created: {reason_of(error.args[0])}.") from None
