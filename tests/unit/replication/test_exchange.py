"""Proves how messages of all groups share a connection, and what is known of the other nodes."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from penstock.model.ids import BrokerId, DirectoryId, LogIndex, Offset, ReplicaId, Term
from penstock.net.peer_buffer import LARGE_FRAME_BYTES_MIN
from penstock.raft.entries import Entry, EntryKind
from penstock.raft.messages import AppendRequest, CommitNotice, PeerFault
from penstock.records.batch import build_batch
from penstock.records.record import Record
from penstock.replication import exchange as exchange_module
from penstock.replication.exchange import APPEND_QUEUE_BYTES_MAX, Exchange
from penstock.replication.peer_codec import write_message
from penstock.replication.peer_frames import FrameWriter, GroupNames
from tests.unit.replication.peers_kit import NotingReplica, Wire, group, replica_id
from tests.unit.replication.rig import PATIENCE_S

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)


class Nodes:
    def __init__(self) -> None:
        self.wire = Wire()
        self.one, self.two = self.wire.exchange(1), self.wire.exchange(2)
        self.replicas = [NotingReplica(number) for number in range(3)]
        for replica in self.replicas:
            self.two.add(replica)

    async def connect(self) -> None:
        self.wire.connect(1, 2)
        await self.wire.settle()


def play(test: Callable[[Nodes], Awaitable[None]]) -> None:
    async def go() -> None:
        await test(Nodes())

    asyncio.run(go())


def notice(commit: int, to: ReplicaId | None = None) -> CommitNotice:
    return CommitNotice(replica_id(1), to or replica_id(2), Term(3), LogIndex(commit))


def append(size: int) -> AppendRequest:
    record = Record(offset=0, timestamp_ms=0, key=None, value=bytes(size), headers=())
    batch = build_batch([record], term=3)
    entry = Entry(LogIndex(8), Term(3), EntryKind.DATA, batch, len(batch))
    ends = replica_id(1), replica_id(2)
    return AppendRequest(*ends, Term(3), LogIndex(7), Term(3), (entry,), LogIndex(7))


def test_messages_of_all_groups_leave_in_one_frame_and_in_order() -> None:
    async def test(nodes: Nodes) -> None:
        await nodes.connect()
        nodes.wire.frames = 0
        for number in range(3):
            nodes.one.send(group(number), [notice(1), append(10_000), notice(2)])
        await nodes.wire.settle()
        assert nodes.wire.frames == 1
        for replica in nodes.replicas:
            assert replica.steps == [notice(1), append(10_000), notice(2)]

    play(test)


def test_a_frame_leaves_early_when_it_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange_module, "FRAME_BYTES_TARGET", 25_000)

    async def test(nodes: Nodes) -> None:
        await nodes.connect()
        nodes.wire.frames = 0
        nodes.one.send(group(0), [append(10_000)] * 7)
        await nodes.wire.settle()
        assert nodes.wire.frames == 3
        assert len(nodes.replicas[0].steps) == 7

    play(test)


def test_a_node_that_is_back_with_a_new_directory_is_not_the_replica_that_it_was() -> None:
    async def test(nodes: Nodes) -> None:
        assert not nodes.one.reaches(replica_id(2))
        await nodes.connect()
        assert nodes.one.reaches(replica_id(2))
        assert not nodes.one.reaches(ReplicaId(TWO, DirectoryId("an earlier one")))

    play(test)


def test_what_can_not_be_delivered_is_lost_without_harm() -> None:
    async def test(nodes: Nodes) -> None:
        nodes.one.send(group(0), [notice(1)])
        await nodes.connect()
        elsewhere = ReplicaId(TWO, DirectoryId("an earlier one"))
        nodes.one.send(group(0), [notice(2, elsewhere)])
        nodes.one.send(group(9), [notice(3)])
        nodes.one.send(group(0), [notice(4)])
        await nodes.wire.settle()
        assert nodes.replicas[0].steps == [notice(4)]

    play(test)


def test_what_was_written_for_a_lost_connection_does_not_leave_with_the_next() -> None:
    async def test(nodes: Nodes) -> None:
        await nodes.connect()
        nodes.one.send(group(0), [notice(1)])
        nodes.wire.cut(1, 2)
        await nodes.connect()
        assert nodes.replicas[0].steps == []
        nodes.one.send(group(0), [notice(2)])
        await nodes.wire.settle()
        assert nodes.replicas[0].steps == [notice(2)]

    play(test)


def test_while_too_much_waits_for_a_node_it_gets_no_entries_but_all_else() -> None:
    async def test(nodes: Nodes) -> None:
        await nodes.connect()
        nodes.wire.networks[1].queued[2] = APPEND_QUEUE_BYTES_MAX + 1
        assert not nodes.one.has_room(replica_id(2))
        nodes.one.send(group(0), [append(10), append(10)._replace(entries=()), notice(1)])
        await nodes.wire.settle()
        assert nodes.replicas[0].steps == [append(10)._replace(entries=()), notice(1)]
        nodes.wire.networks[1].queued[2] = 0
        assert nodes.one.has_room(replica_id(2))
        nodes.one.send(group(0), [append(10)])
        await nodes.wire.settle()
        assert nodes.replicas[0].steps[-1] == append(10)

    play(test)


def test_a_fault_of_one_message_does_not_end_the_connection() -> None:
    async def test(nodes: Nodes) -> None:
        bugs: list[dict[str, object]] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: bugs.append(context))

        def blame(_: object) -> None:
            raise PeerFault("nobody says that")

        def fail(_: object) -> None:
            raise RuntimeError("a bug")

        nodes.replicas[0].step = blame  # type: ignore[method-assign, assignment]
        nodes.replicas[1].step = fail  # type: ignore[method-assign, assignment]
        await nodes.connect()
        for number in range(3):
            nodes.one.send(group(number), [notice(1)])
        await nodes.wire.settle()
        assert nodes.replicas[2].steps == [notice(1)]
        assert len(bugs) == 1
        assert nodes.two.is_alive(ONE)

    play(test)


@pytest.mark.parametrize("item", [b"\xff", b"\x03", b"\x00" * 30, bytes([43]), bytes([36])])
def test_a_bad_frame_ends_the_connection(item: bytes) -> None:
    async def test(nodes: Nodes) -> None:
        await nodes.connect()
        writer = FrameWriter()
        writer.write(item)
        nodes.wire.networks[1].send(TWO, writer.take())
        nodes.wire.networks[1].send(TWO, [b"more"])
        await nodes.wire.settle()
        assert [node for node, _ in nodes.wire.networks[2].dropped] == [1]
        assert not nodes.two.is_alive(ONE)

    play(test)


@pytest.mark.parametrize("is_damaged", [False, True])
def test_nothing_of_a_large_frame_is_acted_on_before_all_of_it_is_verified(
    is_damaged: bool,
) -> None:
    """Its messages are read first; an item of another kind may follow them."""

    async def test(nodes: Nodes) -> None:
        await nodes.connect()
        writer = FrameWriter()
        name = GroupNames().name(group(0))
        write_message(writer, name, notice(1))
        write_message(writer, name, append(LARGE_FRAME_BYTES_MIN))
        writer.write(bytes((50,)) + (7).to_bytes(8, "big"))
        frame = bytearray(b"".join(writer.take()))
        frame[-1] ^= is_damaged
        nodes.wire.networks[1].send(TWO, [frame])
        await nodes.wire.settle()
        wanted = [] if is_damaged else [notice(1), append(LARGE_FRAME_BYTES_MIN)]
        assert nodes.replicas[0].steps == wanted
        assert nodes.two.is_alive(ONE) != is_damaged
        assert nodes.two.metadata_applied(ONE) == (0 if is_damaged else 7)

    play(test)


def test_replicas_hear_of_a_lost_node_and_again_when_it_is_known_to_be_dead() -> None:
    async def test(nodes: Nodes) -> None:
        await nodes.connect()
        nodes.wire.cut(2, 1, process_died=True)
        for replica in nodes.replicas:
            assert replica.lost == ["unreachable 1", "dead 1"]

    play(test)


def test_who_is_there() -> None:
    async def test(nodes: Nodes) -> None:
        changes: list[list[int]] = []
        nodes.one.on_peers_changed(lambda: changes.append(sorted(nodes.one.hellos)))
        assert nodes.one.is_alive(ONE)
        assert not nodes.one.is_alive(TWO)
        await nodes.connect()
        assert nodes.one.is_alive(TWO)
        # A connection that replaces another is not worth telling twice.
        nodes.wire.cut(1, 2)
        nodes.wire.connect(1, 2)
        await nodes.wire.settle()
        nodes.wire.cut(1, 2)
        await nodes.wire.settle()
        assert changes == [[2], [2], []]

    play(test)


def test_a_cluster_that_is_joined_later_is_told_to_those_who_are_connected() -> None:
    async def test(nodes: Nodes) -> None:
        nodes.wire.connect(1, 2, cluster="")
        await nodes.wire.settle()
        nodes.one.set_cluster("blue")
        assert nodes.wire.networks[1].cluster == "blue"
        await nodes.wire.settle()
        assert nodes.two.hellos[ONE].cluster_id == "blue"
        assert nodes.two.is_alive(ONE)
        nodes.two.set_cluster("red")
        await nodes.wire.settle()
        assert not nodes.two.is_alive(ONE)
        assert not nodes.one.is_alive(TWO)

    play(test)


def waiting(exchange: Exchange, offset: int, timeout_s: float = PATIENCE_S) -> "asyncio.Task[bool]":
    return asyncio.get_running_loop().create_task(
        exchange.wait_metadata_applied(Offset(offset), timeout_s)
    )


def test_progress_of_the_metadata_is_awaited_of_all_nodes_that_are_there() -> None:
    async def test(nodes: Nodes) -> None:
        third = nodes.wire.exchange(3)
        nodes.two.set_metadata_applied(Offset(4))
        await nodes.connect()
        nodes.wire.connect(1, 3)
        await nodes.wire.settle()
        assert nodes.one.metadata_applied(TWO) == 4
        nodes.one.set_metadata_applied(Offset(9))
        task = waiting(nodes.one, 7)
        nodes.two.set_metadata_applied(Offset(7))
        await nodes.wire.settle()
        assert not task.done()
        third.set_metadata_applied(Offset(8))
        await nodes.wire.settle()
        assert task.result()
        assert nodes.one.metadata_applied(ONE) == 9
        assert nodes.one.metadata_applied(THREE) == 8
        assert await nodes.one.wait_metadata_applied(Offset(7), 0)

    play(test)


def test_a_dead_or_slow_node_does_not_hold_up_the_wait_for_ever() -> None:
    async def test(nodes: Nodes) -> None:
        await nodes.connect()
        nodes.one.set_metadata_applied(Offset(5))
        dies = waiting(nodes.one, 5)
        slow = waiting(nodes.one, 5, 0.01)
        assert not await slow
        nodes.wire.cut(1, 2)
        assert await dies
        assert nodes.one.metadata_applied(TWO) == 0

    play(test)


def test_a_node_that_is_still_joining_is_not_waited_for() -> None:
    async def test(nodes: Nodes) -> None:
        nodes.wire.connect(1, 2, cluster="")
        nodes.one.set_metadata_applied(Offset(5))
        await nodes.wire.settle()
        assert await nodes.one.wait_metadata_applied(Offset(5), 0)

    play(test)


class ShiftedTime:
    """Lets a loop believe that more time has passed: its timers become due, however fast or slow
    the machine is."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._time = loop.time
        self._ahead_s = 0.0
        loop.time = self.now  # type: ignore[method-assign]

    def now(self) -> float:
        return self._time() + self._ahead_s

    async def pass_by(self, seconds: float) -> None:
        self._ahead_s += seconds
        # What is due runs in the turn after this one.
        for _ in range(3):
            await asyncio.sleep(0)


def test_ticks_come_from_a_timer_and_a_late_one_counts_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # So long that none is due by itself.
    monkeypatch.setattr(exchange_module, "TICK_SECONDS", 1_000)

    async def test(nodes: Nodes) -> None:
        time = ShiftedTime(asyncio.get_running_loop())
        replica = nodes.replicas[0]
        nodes.two.start()
        for count in range(3):
            assert replica.ticks == count
            await time.pass_by(1_001)
        assert replica.ticks == 3
        # As if the process had been stopped.
        await time.pass_by(20_000)
        assert replica.ticks == 4
        nodes.two.stop()
        await time.pass_by(20_000)
        assert replica.ticks == 4

    play(test)
