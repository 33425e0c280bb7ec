"""What a replica needs of the nodes' exchange: the way out for its messages and its news."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from penstock.model.ids import PartitionId, ReplicaId
from penstock.raft.messages import Message

if TYPE_CHECKING:
    from penstock.replication.group_member import GroupMember


class Outbound(Protocol):
    def send(self, key: PartitionId, messages: Sequence[Message]) -> None:
        """Sends soon, or loses; Raft sends again."""
        ...

    def has_room(self, to: ReplicaId) -> bool:
        """Whether entries for that replica would be sent and not lost."""
        ...

    def announce(self, replica: "GroupMember") -> None:
        """Its leadership, its in-sync set or its members may have changed."""
        ...
