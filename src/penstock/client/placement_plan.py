"""Plans where replicas should be: away from a node that leaves, or evenly over all nodes.

Pure: a plan follows from who is where, the same input gives the same plan, and it moves no more
than it must. Copies of a partition stay on different nodes and on as many racks as there are.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from penstock.client.errors import ClientError
from penstock.model.ids import TopicPartition

Replicas = tuple[int, ...]


class Site(NamedTuple):
    """A node that may hold replicas."""

    node: int
    rack: str | None = None


class Move(NamedTuple):
    """What the replicas of a partition become; the first is the preferred leader."""

    place: TopicPartition
    replicas: Replicas


class NoRoom(ClientError):
    """There are too few nodes for what was asked."""


def plan_drain(
    leaving: int,
    sites: Sequence[Site],
    placed: Mapping[TopicPartition, Replicas],
    *,
    can_shrink: bool = False,
) -> list[Move]:
    """Moves that leave nothing on node `leaving`; `sites` are the nodes that may take it.

    With `can_shrink` a partition gets fewer copies where no node is left to take one; otherwise
    that raises NoRoom.
    """
    board = _Board((site for site in sites if site.node != leaving), placed)
    for place in [place for place, replicas in board.placed.items() if leaving in replicas]:
        replicas = board.placed[place]
        staying = tuple(node for node in replicas if node != leaving)
        taker = board.best_site(staying)
        if taker is None and not (can_shrink and staying):
            raise _no_room(place, replicas, leaving)
        if replicas[0] == leaving:
            staying = board.with_least_leading_first(staying)
        board.put(place, staying if taker is None else (*staying, taker))
    return board.moves()


def plan_rebalance(sites: Sequence[Site], placed: Mapping[TopicPartition, Replicas]) -> list[Move]:
    """Moves after which racks, replicas and preferred leaders are spread as evenly as can be."""
    board = _Board(sites, placed)
    for place in list(board.placed):
        _spread_over_racks(board, place)
    while any(_unload(board, node) for node in board.by_load()):
        pass
    while _hand_over_one_lead(board):
        pass
    return board.moves()


def _no_room(place: TopicPartition, replicas: Replicas, leaving: int) -> NoRoom:
    copies = "1 copy" if len(replicas) == 1 else f"{len(replicas)} copies"
    return NoRoom(
        f"Partition {place} has {copies} and no other node is free to take the one on node "
        f"{leaving}: add a node, or allow fewer copies with --fewer-copies."
    )


class _Board:
    """Where everything is while a plan is made, with the counts that decisions look at."""

    def __init__(self, sites: Iterable[Site], placed: Mapping[TopicPartition, Replicas]) -> None:
        self.racks = {site.node: site.rack for site in sorted(sites)}
        self.placed = dict(sorted(placed.items()))
        self.load: Counter[int] = Counter()
        self.leads: Counter[int] = Counter()
        self.topic_load: Counter[tuple[str, int]] = Counter()
        # For each pair of nodes the partitions that the first leads and the second could lead; a
        # dict stands for a set that keeps its order, so that a plan can be repeated.
        self.handovers: dict[tuple[int, int], dict[TopicPartition, None]] = {}
        self._before = dict(self.placed)
        for place, replicas in self.placed.items():
            self._count(place, replicas, 1)

    def put(self, place: TopicPartition, replicas: Replicas) -> None:
        self._count(place, self.placed[place], -1)
        self.placed[place] = replicas
        self._count(place, replicas, 1)

    def replace(self, place: TopicPartition, old: int, new: int) -> None:
        self.put(place, tuple(new if node == old else node for node in self.placed[place]))

    def moves(self) -> list[Move]:
        return [
            Move(place, replicas)
            for place, replicas in self.placed.items()
            if replicas != self._before[place]
        ]

    def by_load(self) -> list[int]:
        return sorted(self.racks, key=lambda node: (-self.load[node], node))

    def best_site(self, others: Replicas) -> int | None:
        """The node that should join `others`: on a new rack if there is one, and least loaded."""
        used = {self.racks.get(node) for node in others}
        free = [node for node in self.racks if node not in others]
        return min(
            free, key=lambda node: (self.racks[node] in used, self.load[node], node), default=None
        )

    def rack_count(self, replicas: Iterable[int]) -> int:
        return len({self.racks.get(node) for node in replicas})

    def with_least_leading_first(self, replicas: Replicas) -> Replicas:
        if not replicas:
            return replicas
        first = min(replicas, key=lambda node: (self.leads[node], replicas.index(node)))
        return (first, *(node for node in replicas if node != first))

    def _count(self, place: TopicPartition, replicas: Replicas, change: int) -> None:
        for node in replicas:
            self.load[node] += change
            self.topic_load[place.topic, node] += change
        if replicas:
            self.leads[replicas[0]] += change
        for node in replicas[1:]:
            pair = self.handovers.setdefault((replicas[0], node), {})
            if change > 0:
                pair[place] = None
            else:
                pair.pop(place, None)


def _spread_over_racks(board: _Board, place: TopicPartition) -> None:
    """Copies that share a rack move to racks that have none, as far as there are any."""
    possible = min(len(board.placed[place]), len(set(board.racks.values())))
    while board.rack_count(board.placed[place]) < possible:
        crowded = _crowded(board, board.placed[place])
        taker = board.best_site(tuple(node for node in board.placed[place] if node != crowded))
        before = board.rack_count(board.placed[place])
        if crowded is None or taker is None:
            return
        board.replace(place, crowded, taker)
        if board.rack_count(board.placed[place]) <= before:
            return


def _crowded(board: _Board, replicas: Replicas) -> int | None:
    """A replica that shares its rack with another: not the leader if possible, most loaded."""
    racks = Counter(board.racks.get(node) for node in replicas)
    sharing = [node for node in replicas if node in board.racks and racks[board.racks[node]] > 1]
    return max(
        sharing, key=lambda node: (node != replicas[0], board.load[node], node), default=None
    )


def _unload(board: _Board, node: int) -> bool:
    """Moves replicas from a node to less loaded ones; False when it has nothing to give."""
    has_moved = False
    held = [place for place, replicas in board.placed.items() if node in replicas]
    # Where a topic is most crowded it is taken from first, so that topics are spread too.
    held.sort(key=lambda place: (-board.topic_load[place.topic, node], place))
    for place in held:
        taker = _taker(board, place, node)
        if taker is not None:
            board.replace(place, node, taker)
            has_moved = True
    return has_moved


def _taker(board: _Board, place: TopicPartition, giver: int) -> int | None:
    replicas = board.placed[place]
    racks = board.rack_count(replicas)
    able = [
        node
        for node in board.racks
        if node not in replicas
        and board.load[giver] - board.load[node] >= 2
        and board.rack_count([*(one for one in replicas if one != giver), node]) >= racks
    ]
    return min(
        able,
        key=lambda node: (board.load[node], board.topic_load[place.topic, node], node),
        default=None,
    )


def _hand_over_one_lead(board: _Board) -> bool:
    """One lead less for a node that has too many, by way of others if it must be."""
    for giver in sorted(board.racks, key=lambda node: (-board.leads[node], node)):
        path = _path_to_idler(board, giver)
        if path:
            for leader, follower in path:
                _swap(board, next(iter(board.handovers[leader, follower])), follower)
            return True
    return False


def _path_to_idler(board: _Board, giver: int) -> list[tuple[int, int]]:
    """Shortest chain of hand-overs to a node that leads at least two partitions fewer."""
    came_from: dict[int, int] = {}
    queue = deque([giver])
    while queue:
        node = queue.popleft()
        if board.leads[giver] - board.leads[node] >= 2:
            return list(_steps(came_from, giver, node))[::-1]
        for other in board.racks:
            if other not in came_from and other != giver and board.handovers.get((node, other)):
                came_from[other] = node
                queue.append(other)
    return []


def _steps(came_from: Mapping[int, int], giver: int, last: int) -> Iterator[tuple[int, int]]:
    while last != giver:
        yield came_from[last], last
        last = came_from[last]


def _swap(board: _Board, place: TopicPartition, leader: int) -> None:
    others = tuple(node for node in board.placed[place] if node != leader)
    board.put(place, (leader, *others))
