"""How nodes come to belong to a cluster: alone, together, or by meeting one that exists."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

import pytest

from penstock.cluster.formation import Formation, decode_introduction
from penstock.model.endpoint import Endpoint
from penstock.model.errors import Reason, Refused, StartRefused
from penstock.model.ids import BrokerId, DirectoryId, ReplicaId
from penstock.model.peers import PEER_VERSION, PeerHello

Handler = Callable[[BrokerId, bytes], Awaitable[bytes]]


class Directory:
    def __init__(self, name: str) -> None:
        self.directory_id = DirectoryId(name)
        self.cluster_id: str | None = None
        self.founders: Sequence[ReplicaId] = ()

    def set_cluster(self, cluster_id: str, founders: Sequence[ReplicaId]) -> None:
        assert self.cluster_id is None
        self.cluster_id, self.founders = cluster_id, tuple(founders)


class Town:
    """All nodes that run; each sees those whose address it dials or was dialed from."""

    def __init__(self) -> None:
        self.nodes: dict[BrokerId, FakeNode] = {}

    def add(
        self,
        number: int,
        *,
        listed: Sequence[int] = (),
        join: int | None = None,
        directory: Directory | None = None,
    ) -> "FakeNode":
        node = FakeNode(self, BrokerId(number), listed, join, directory)
        self.nodes[node.number] = node
        return node


class FakeNode:
    """A node's exchange and network in one, as far as formation needs them."""

    def __init__(
        self,
        town: Town,
        number: BrokerId,
        listed: Sequence[int],
        join: int | None,
        directory: Directory | None,
    ) -> None:
        self.number = number
        self.directory = directory or Directory(f"dir-{number}")
        self._town = town
        self._handlers: dict[str, Handler] = {}
        self.cluster_id = ""
        self.formation = Formation(
            node=number,
            identity=self.directory,
            exchange=self,  # type: ignore[arg-type]
            network=self,  # type: ignore[arg-type]
            listed={BrokerId(node): _endpoint(node) for node in listed},
            join=None if join is None else _endpoint(join),
            new_cluster_id=lambda: f"cluster-of-{number}",
        )

    @property
    def hellos(self) -> Mapping[BrokerId, PeerHello]:
        return {
            node.number: PeerHello(
                PEER_VERSION,
                "",
                node.number,
                node.directory.directory_id,
                1,
                _endpoint(node.number),
            )
            for node in self._town.nodes.values()
            if node is not self
        }

    def serve(self, method: str, handler: Handler) -> None:
        self._handlers[method] = handler

    async def call(self, node: BrokerId, method: str, payload: bytes, timeout_s: float) -> bytes:
        other = self._town.nodes.get(node)
        if other is None:
            raise Refused(Reason.LEADER_NOT_AVAILABLE, "not connected")
        return await other._handlers[method](self.number, payload)

    def meet(self, endpoints: Sequence[Endpoint]) -> None:
        assert endpoints

    def set_cluster(self, cluster_id: str) -> None:
        self.cluster_id = cluster_id


def _endpoint(node: int) -> Endpoint:
    return Endpoint("127.0.0.1", 9095 + 100 * node)


def _run(*nodes: FakeNode) -> None:
    async def form() -> None:
        await asyncio.wait_for(asyncio.gather(*(node.formation.run() for node in nodes)), 60)

    asyncio.run(form())


def test_a_stand_alone_node_founds_a_cluster_of_one() -> None:
    node = Town().add(7)
    _run(node)
    assert node.directory.founders == (ReplicaId(BrokerId(7), DirectoryId("dir-7")),)
    assert node.cluster_id == node.directory.cluster_id == "cluster-of-7"


def test_nodes_that_list_each_other_found_one_cluster_with_the_same_founders() -> None:
    town = Town()
    nodes = [town.add(number, listed=(1, 2, 3)) for number in (3, 1, 2)]
    _run(*nodes)
    assert {node.directory.cluster_id for node in nodes} == {"cluster-of-1"}
    assert {tuple(node.directory.founders) for node in nodes} == {
        tuple(ReplicaId(BrokerId(number), DirectoryId(f"dir-{number}")) for number in (1, 2, 3))
    }


def test_no_cluster_is_founded_while_a_listed_node_is_missing() -> None:
    town = Town()
    nodes = [town.add(number, listed=(1, 2, 3)) for number in (1, 2)]

    async def wait() -> None:
        runs = [asyncio.ensure_future(node.formation.run()) for node in nodes]
        await asyncio.wait(runs, timeout=0.5)
        assert not any(run.done() for run in runs)
        assert all(node.directory.cluster_id is None for node in nodes)
        third = town.add(3, listed=(1, 2, 3))
        await asyncio.wait_for(asyncio.gather(*runs, third.formation.run()), 60)

    asyncio.run(wait())
    assert nodes[0].directory.cluster_id is not None


def test_an_unlisted_node_does_not_stand_in_for_a_listed_one() -> None:
    town = Town()
    nodes = [town.add(1, listed=(1, 2, 3)), town.add(2, listed=(1, 2, 3)), town.add(9, join=1)]

    async def wait() -> None:
        runs = [asyncio.ensure_future(node.formation.run()) for node in nodes]
        await asyncio.wait(runs, timeout=0.4)
        for run in runs:
            run.cancel()
        await asyncio.gather(*runs, return_exceptions=True)

    asyncio.run(wait())
    assert all(node.directory.cluster_id is None for node in nodes)


def test_a_listed_node_with_an_empty_disk_takes_over_the_cluster_and_is_no_founder() -> None:
    town = Town()
    _run(*[town.add(number, listed=(1, 2, 3)) for number in (1, 2, 3)])
    returned = town.add(1, listed=(1, 2, 3), directory=Directory("new"))
    _run(returned)
    assert returned.directory.cluster_id == "cluster-of-1"
    assert ReplicaId(BrokerId(1), DirectoryId("new")) not in returned.directory.founders


def test_a_node_that_joins_takes_over_the_cluster_it_meets() -> None:
    town = Town()
    _run(town.add(1))
    joined = town.add(4, join=1)
    _run(joined)
    assert joined.directory.cluster_id == "cluster-of-1"


def test_a_stored_cluster_wins_over_the_flags() -> None:
    directory = Directory("old")
    directory.set_cluster("known", [ReplicaId(BrokerId(1), DirectoryId("old"))])
    node = Town().add(1, listed=(1, 2, 3), directory=directory)
    _run(node)
    assert node.cluster_id == "known"


def test_nodes_with_different_lists_refuse_to_start_with_a_sentence() -> None:
    town = Town()
    first, second = town.add(1, listed=(1, 2)), town.add(2, listed=(1, 2, 3))
    with pytest.raises(StartRefused, match="list the same"):
        _run(first, second)


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"cluster_id": "a", "founders": [1]}'])
def test_what_is_no_introduction_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match="not an introduction"):
        decode_introduction(data)
