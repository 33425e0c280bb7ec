"""Carries out a plan: orders its moves a few at a time and watches until each is done."""

import time
from collections import deque
from collections.abc import Callable, Sequence

from penstock.client.cluster import ClusterClient, PartitionView
from penstock.client.errors import ClientError
from penstock.client.placement_plan import Move, Replicas
from penstock.model.ids import TopicPartition

# All at once would copy every partition at the same time and leave clients little of the network.
MOVES_AT_ONCE = 20
POLL_S = 0.2


class StillMoving(ClientError):
    """Time is up; the cluster goes on without us."""


class Patience:
    """How long a command waits, and how it passes the time."""

    def __init__(
        self,
        wait_s: float,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._deadline = monotonic() + wait_s
        self._monotonic = monotonic
        self._sleep = sleep

    def is_over(self) -> bool:
        return self._monotonic() > self._deadline

    def pause(self) -> None:
        self._sleep(POLL_S)


def carry_out(
    client: ClusterClient,
    moves: Sequence[Move],
    *,
    patience: Patience,
    advance: Callable[[int], None],
) -> None:
    """Returns when every move is done; `advance` hears how many were since its last call."""
    waiting = deque(moves)
    ordered: dict[TopicPartition, Replicas] = {}
    while waiting or ordered:
        batch = [waiting.popleft() for _ in range(min(len(waiting), MOVES_AT_ONCE - len(ordered)))]
        if batch:
            client.reassign(batch)
            ordered.update(batch)
        done = _done(client, ordered)
        for place in done:
            del ordered[place]
        advance(len(done))
        if done:
            continue
        if patience.is_over():
            raise _still_moving(len(ordered) + len(waiting), len(moves))
        patience.pause()


def lead_by_preferred(client: ClusterClient, *, patience: Patience) -> int:
    """Gives all partitions to their preferred leaders; returns how many could not be given."""
    while True:
        misled = [one.place for one in client.partitions() if _is_misled(one)]
        if not misled:
            return 0
        client.elect_preferred(misled)
        if patience.is_over():
            return len(misled)
        patience.pause()


def lead_by(
    client: ClusterClient, place: TopicPartition, leader: int, *, patience: Patience
) -> None:
    """Elects until the preferred leader leads the partition."""
    while True:
        reason = client.elect_preferred([place]).get(place, "the election takes too long")
        if any(one.place == place and one.leader == leader for one in client.partitions()):
            return
        if patience.is_over():
            raise ClientError(
                f"Node {leader} did not become the leader of partition {place}: {reason}."
            )
        patience.pause()


def _is_misled(one: PartitionView) -> bool:
    return bool(one.replicas) and one.leader != one.replicas[0] and one.replicas[0] in one.in_sync


def _done(client: ClusterClient, ordered: dict[TopicPartition, Replicas]) -> list[TopicPartition]:
    """A move is done when it is no longer listed and its outcome is seen, or its topic is gone."""
    moving = {one.place for one in client.moving()}
    now = {one.place: one.replicas for one in client.partitions()}
    return [
        place
        for place, wanted in ordered.items()
        if place not in moving and now.get(place, wanted) == wanted
    ]


def _still_moving(left: int, total: int) -> StillMoving:
    return StillMoving(
        f"Time is up with {left} of {total} partitions still to be moved. Moves in progress "
        f"continue, and the same command moves the rest."
    )
