"""What the parts of `Admin` share: a way to put a question to the broker and get its answer."""

from concurrent.futures import Future
from typing import Any, Protocol

from confluent_kafka.admin import AdminClient


class Asking(Protocol):
    client: AdminClient
    bootstrap: str
    timeout_s: float

    def answer(self, future: "Future[Any]", what: str) -> Any:
        """The result of `future`; raises ClientError about `what`, as in "topic orders"."""
        ...

    def reconnect(self) -> None:
        """Starts over with a client that knows nothing yet."""
        ...

    def metadata(self) -> Any:
        """Every topic with its partitions, as librdkafka's ClusterMetadata."""
        ...
