"""Share groups (KIP-932) as administrators see them; confluent-kafka has no call for them."""

from collections.abc import Iterator

from penstock.client.asking import Asking
from penstock.client.errors import ClientError
from penstock.client.kafka_connection import KafkaConnection
from penstock.protocol.kafka.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from penstock.protocol.kafka.messages.share_group_describe import (
    DescribedShareGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)

SHARE = "share"


class ShareGroups:
    def __init__(self, asking: Asking) -> None:
        self._asking = asking

    def all(self) -> list[DescribedShareGroup]:
        """Each broker knows those that it coordinates; one that is away is left out."""
        return [group for broker in self._brokers() for group in self._coordinated(broker[1])]

    def find(self, group: str) -> tuple[int, DescribedShareGroup] | None:
        """The broker that coordinates the group, and the group; None when there is none."""
        for broker_id, address in self._brokers():
            for described in self._described(address, [group]):
                return broker_id, described
        return None

    def _brokers(self) -> Iterator[tuple[int, str]]:
        for broker in self._asking.metadata().brokers.values():
            yield broker.id, f"{broker.host}:{broker.port}"

    def _coordinated(self, address: str) -> list[DescribedShareGroup]:
        try:
            with KafkaConnection(address, timeout_s=self._asking.timeout_s) as connection:
                answer = connection.ask(ListGroupsRequest(types_filter=[SHARE]), ListGroupsResponse)
        except ClientError:
            return []
        # A broker that does not know types lists all of its groups.
        names = [one.group_id for one in answer.groups if one.group_type.lower() == SHARE]
        return self._described(address, names) if names else []

    def _described(self, address: str, groups: list[str]) -> list[DescribedShareGroup]:
        request = ShareGroupDescribeRequest(group_ids=groups)
        try:
            with KafkaConnection(address, timeout_s=self._asking.timeout_s) as connection:
                answer = connection.ask(request, ShareGroupDescribeResponse)
        except ClientError:
            # It is away, or has no share groups.
            return []
        return [one for one in answer.groups if not one.error_code]
