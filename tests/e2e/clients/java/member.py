"""A group member that is Kafka's own consumer; it reports to a ledger as the others do."""

import uuid
from typing import Any

from tests.e2e.clients.java import Java
from tests.e2e.ledger import Ledger
from tests.e2e.members import HEARTBEAT_MS, SESSION_MS

ASSIGNORS = {
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}

# For members that stay in their group while they are away.
LONG_SESSION_MS = "60000"


class JavaMember:
    def __init__(
        self,
        java: Java,
        name: str,
        bootstrap: str,
        topic: str,
        group: str,
        strategy: str,
        ledger: Ledger,
        **settings: str,
    ) -> None:
        self.java, self.name, self.bootstrap, self.topic = java, name, bootstrap, topic
        self.ledger = ledger
        # A member that a failed test left behind must not be taken for a later one of its name.
        self.key = f"{name}-{uuid.uuid4().hex}"
        self.settings = {
            "group.id": group,
            "client.id": name,
            **self._protocol(strategy),
        } | {key.replace("_", "."): value for key, value in settings.items()}

    def _protocol(self, strategy: str) -> dict[str, str]:
        return {
            "partition.assignment.strategy": ASSIGNORS[strategy],
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
        }

    def start(self) -> None:
        self.ledger.joins(self.name)
        self.java.listeners[self.key] = self._on_event
        self.java.call(
            "start_member",
            self.bootstrap,
            member=self.key,
            topic=self.topic,
            settings=self.settings,
        )

    def stop(self) -> None:
        """Leave the group in good order."""
        stopped = self.java.call("stop_member", self.bootstrap, member=self.key)
        assert stopped, f"{self.name} does not stop"

    def _on_event(self, event: str, details: list[Any]) -> None:
        match event:
            case "assigned":
                self.ledger.assigned(self.name, details)
            case "revoked":
                self.ledger.revoked(self.name, details)
            case "read":
                self.ledger.read(self.name, *details)
            case "committed":
                self.ledger.committed(self.name)
            case "left":
                self.ledger.left(self.name)
            case "failed":
                self.ledger.failed(self.name, RuntimeError(*details))
            case "postponed":
                pass  # A commit waits for the end of a rebalance, which is nobody's fault.
            case _:
                raise AssertionError(f"{self.name} reports {event}, which nobody expects")


class JavaConsumerMember(JavaMember):
    """Of the new protocol (KIP-848): the broker assigns, and says how often it wants to hear."""

    def _protocol(self, strategy: str) -> dict[str, str]:
        return {"group.protocol": "consumer", "group.remote.assignor": strategy}
