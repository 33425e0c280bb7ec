"""What a state machine knows is what its log says: on hosts, in feeds, and in their snapshots."""

from collections.abc import Iterable, Iterator
from typing import Any

from penstock.model.errors import StorageDamaged
from penstock.model.ids import Offset, PartitionId
from penstock.queues.state import QueuesState
from penstock.replication.feed import Feed
from penstock.replication.hosting import Host
from penstock.replication.replay import decode_committed
from penstock.replication.state_files import REPLAY_BYTES
from penstock.storage.snapshot import read_snapshot
from tests.sim.nodes.node import SimulatedNode
from tests.sim.replicas.history import Violation, require

# How a state shares memory with its snapshots is not part of what it knows.
_INTERNAL = frozenset({"_unshared"})

Keeper = Host[Any, Any] | Feed[Any, Any]


class States:
    """Remembers the snapshots that ended processes left behind, until the log can judge them."""

    def __init__(self) -> None:
        self._snapshots: dict[PartitionId, set[tuple[Offset, bytes]]] = {}

    def note_snapshots(self, node: SimulatedNode) -> None:
        """Of a process that is about to end: the next one may begin from them."""
        for keeper in _keepers(node):
            try:
                snapshot = read_snapshot(node.machine.drive, keeper._file._path)
            except (StorageDamaged, OSError):
                # Anyone who needs it notices.
                continue
            if snapshot is not None:
                noted = self._snapshots.setdefault(keeper.replica.key, set())
                noted.add((snapshot.offset, snapshot.data))

    def check(self, nodes: Iterable[SimulatedNode]) -> None:
        """Once a run is over: all is committed, and nobody is at work."""
        keepers: dict[PartitionId, Keeper] = {}
        for node in nodes:
            self.note_snapshots(node)
            for keeper in _keepers(node):
                keepers[keeper.replica.key] = keeper
                _check_keeper(keeper)
        for key, snapshots in self._snapshots.items():
            if key in keepers:
                _check_snapshots(keepers[key], sorted(snapshots))


def _keepers(node: SimulatedNode) -> Iterator[Keeper]:
    server = node.server
    if server is not None and node.is_up:
        yield server.cluster._feed
        for coordinator in server.services.groups._coordinators.values():
            yield coordinator._host
        for shares in server.services.queues._coordinators._coordinators.values():
            yield shares._host


def _check_keeper(keeper: Keeper) -> None:
    if isinstance(keeper, Feed):
        end = keeper.applied
    elif keeper.is_ready:
        end = keeper.replica.log_end_offset
    else:
        return
    state = keeper._file._make_state()
    _apply(keeper, state, keeper.replica.log_start_offset, end)
    name = f"the state of {keeper.replica.partition} on {keeper.replica.id}"
    _require_equal(keeper.state, state, name)


def _check_snapshots(keeper: Keeper, snapshots: Iterable[tuple[Offset, bytes]]) -> None:
    """Each holds what is committed before its offset: all of it, and nothing else."""
    replica = keeper.replica
    if replica._log._state.cleaned_offset or replica.log_start_offset:
        # What a snapshot holds may be gone from the log, since later records replaced it, or since
        # the log was shortened.
        return
    state, position = keeper._file._make_state(), replica.log_start_offset
    for offset, data in snapshots:
        name = f"a snapshot of {replica.partition} at offset {offset}"
        end = replica.high_watermark
        require(offset <= end, f"{name} was written, and no more than {end} is committed")
        _apply(keeper, state, position, offset)
        position = offset
        found = keeper._file._make_state()
        found.restore(data)
        _require_equal(found, state, name)


def _apply(keeper: Keeper, state: Any, offset: Offset, end: Offset) -> None:
    while offset < end:
        found = keeper.replica.read_committed(offset, REPLAY_BYTES)
        assert found is not None
        records, offset = decode_committed(found.read(), offset)
        found.release()
        for record in records:
            if record.offset < end:
                state.apply(keeper._codec.decode(record.key, record.value))


def _require_equal(found: Any, expected: Any, name: str) -> None:
    known, said = _content(found), _content(expected)
    if known != said:
        names = sorted(known.keys() | said.keys())
        differing = [key for key in names if known.get(key) != said.get(key)]
        details = [f"{key} is {known.get(key)}, not {said.get(key)}" for key in differing]
        raise Violation(f"{name} is not what the log says: {'; '.join(details)}")


def _content(state: Any) -> dict[str, Any]:
    if isinstance(state, QueuesState):
        return {str(queue.key): queue.stored() for queue in state._queues.values()}
    return {name: value for name, value in vars(state).items() if name not in _INTERNAL}
