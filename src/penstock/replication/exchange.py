"""Everything that the nodes of a cluster say to each other goes through here.

It knows the groups of this node and the connections to others. Messages of all groups to one node
leave together once per turn of the loop. It gives the groups their ticks, and it answers who is
there, who leads what, and how far others have come with the metadata.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from typing import Final

from penstock.model.ids import BrokerId, Offset, PartitionId, ReplicaId
from penstock.model.limits import MIB
from penstock.model.peers import NO_CLUSTER, PeerHello
from penstock.net.occasional_log import OccasionalLog
from penstock.raft.messages import AppendRequest, Message, PeerFault
from penstock.replication import calls
from penstock.replication.calls import Calls, Handler
from penstock.replication.commit import report_bug
from penstock.replication.group_replica import GroupReplica
from penstock.replication.heartbeats import Heartbeats
from penstock.replication.leaders import LeaderTable
from penstock.replication.metadata_progress import MetadataProgress
from penstock.replication.peer_codec import RAFT_KIND_MAX, read_message, write_message
from penstock.replication.peer_frames import KEY_SIZE, DecodeError, FrameReader, GroupNames
from penstock.replication.peer_link import PeerLink
from penstock.replication.peer_network import PeerNetwork

TICK_SECONDS: Final = 0.1
# A frame leaves before the turn ends once it has grown so large.
FRAME_BYTES_TARGET: Final = 4 * MIB
# While more than this waits for a node, appends to it are not sent: it can't take them faster, and
# beats must not wait behind them for long. Raft finds out by the beats and sends again.
APPEND_QUEUE_BYTES_MAX: Final = 32 * MIB

_METADATA_APPLIED: Final = 50
_CLUSTER: Final = 51
_OFFSET_ITEM: Final = Struct(">BQ")
_OFFSET: Final = Struct(">Q")

logger = logging.getLogger(__name__)


class Exchange:
    """Implements PeerListener for the network and Outbound for the replicas."""

    def __init__(self, *, own: ReplicaId, network: PeerNetwork, log: OccasionalLog) -> None:
        self.own = own
        self.leaders = LeaderTable()
        self._network = network
        self._log = log
        self._names = GroupNames()
        self._links: dict[BrokerId, PeerLink] = {}
        # Links that have something to send at the end of this turn.
        self._due: list[PeerLink] = []
        self._hellos: dict[BrokerId, PeerHello] = {}
        self._heartbeats = Heartbeats(own, self.leaders, self._names)
        self._calls = Calls(own.node)
        self._progress = MetadataProgress()
        self._cluster_id = NO_CLUSTER
        self._timer: asyncio.TimerHandle | None = None
        self._on_tick: list[Callable[[], None]] = []
        self._on_peers_changed: list[Callable[[], None]] = []
        self._peers_changed_is_due = False

    # Life

    def start(self) -> None:
        """Ticks from now on."""
        assert self._timer is None
        self._timer = asyncio.get_running_loop().call_later(TICK_SECONDS, self._on_timer)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._calls.stop()
        self._flush()

    def _on_timer(self) -> None:
        """However late it is, it is one tick: a process that was paused must not conclude from
        the time it missed that others were silent."""
        self._timer = asyncio.get_running_loop().call_later(TICK_SECONDS, self._on_timer)
        self.tick()

    def tick(self) -> None:
        for callback in self._on_tick:
            callback()
        self._heartbeats.tick()

    def on_tick(self, callback: Callable[[], None]) -> None:
        """Calls back with every tick, before the groups get theirs."""
        self._on_tick.append(callback)

    # Groups

    def add(self, replica: GroupReplica) -> None:
        self._heartbeats.add(replica)

    def remove(self, key: PartitionId) -> None:
        self._heartbeats.remove(key)

    def announce(self, replica: GroupReplica) -> None:
        self._heartbeats.announce(replica)

    def send(self, key: PartitionId, messages: Sequence[Message]) -> None:
        """Sends at the end of this turn, or loses what can't be sent: Raft sends again."""
        name = self._names.name(key)
        for message in messages:
            link = self._links.get(message.to.node)
            if link is None or link.id != message.to:
                continue
            if isinstance(message, AppendRequest):
                self._heartbeats.sent_append(link.node, name)
                if message.entries and self._is_full(link):
                    continue
            write_message(link.writer(), name, message)
            if link.waiting_bytes > FRAME_BYTES_TARGET:
                self._flush_link(link)

    def has_room(self, to: ReplicaId) -> bool:
        """Asked before entries are read: of many groups that are behind, few have their turn."""
        link = self._links.get(to.node)
        return link is None or not self._is_full(link)

    def _is_full(self, link: PeerLink) -> bool:
        waiting = link.waiting_bytes + self._network.queued_bytes(link.node)
        return waiting > APPEND_QUEUE_BYTES_MAX

    def _request_flush(self, link: PeerLink) -> None:
        if not self._due:
            asyncio.get_running_loop().call_soon(self._flush)
        self._due.append(link)

    def _flush(self) -> None:
        due, self._due = self._due, []
        for link in due:
            self._flush_link(link)

    def _flush_link(self, link: PeerLink) -> None:
        if link.waiting_bytes:
            pieces = link.take()
            if link.is_open:
                self._network.send(link.node, pieces)

    # The network's side

    def connected(self, hello: PeerHello) -> None:
        assert hello.node not in self._links
        link = PeerLink(hello, self._request_flush)
        self._links[hello.node] = link
        self._hellos[hello.node] = hello
        self._heartbeats.connected(link)
        self._tell_progress(link)
        # It may have been set while the handshake was under way.
        self._tell_cluster(link)
        self._peers_changed()

    def disconnected(self, node: BrokerId, *, process_died: bool) -> None:
        link = self._links.pop(node, None)
        if link is not None:
            link.is_open = False
            del self._hellos[node]
            self._heartbeats.disconnected(node)
            self._calls.disconnected(node)
            self._tell_replicas(lambda replica: replica.unreachable(node))
            self._review_progress()
            self._peers_changed()
        if process_died and node not in self._links:
            self._tell_replicas(lambda replica: replica.leader_lost(node))

    def _tell_replicas(self, tell: Callable[[GroupReplica], object]) -> None:
        for replica in self._heartbeats.replicas():
            try:
                tell(replica)
            except Exception as bug:
                report_bug("a replica could not be notified of a lost node", bug)

    def received(self, node: BrokerId, frame: memoryview) -> None:
        link = self._links.get(node)
        if link is None:
            return
        self._heartbeats.heard(node)
        try:
            reader = FrameReader(frame)
            if not reader.is_verified:
                self._read_ahead(link, reader)
            while reader.has_more and link.is_open:
                self._read_item(link, reader)
        except DecodeError as fault:
            self._log.warning(logger, "peer-frame", "node %d sent a bad frame: %s", node, fault)
            self._network.drop(node, str(fault))

    def _read_ahead(self, link: PeerLink, reader: FrameReader) -> None:
        """Reads the messages that a large frame begins with, and acts on them once they are known
        to be what was sent."""
        read: list[tuple[bytes, Message]] = []
        while reader.has_more and reader.peek() <= RAFT_KIND_MAX:
            read.append(self._read_message(link, reader.byte(), reader))
        reader.verify()
        for name, message in read:
            if link.is_open:
                self._step(link, name, message)

    def _read_item(self, link: PeerLink, reader: FrameReader) -> None:
        kind = reader.byte()
        if kind <= RAFT_KIND_MAX:
            self._step(link, *self._read_message(link, kind, reader))
        elif kind < calls.CALL:
            self._heartbeats.read(kind, link.node, reader)
        elif kind == calls.CALL:
            self._calls.read_call(link, reader)
        elif kind == calls.REPLY:
            self._calls.read_reply(link.node, reader)
        elif kind == calls.REFUSAL:
            self._calls.read_refusal(link.node, reader)
        elif kind == _METADATA_APPLIED:
            link.metadata_applied = Offset(reader.unpack(_OFFSET)[0])
            self._review_progress()
        elif kind == _CLUSTER:
            self._hear_cluster(link, reader.text())
        else:
            raise DecodeError(f"there is no item of kind {kind}")

    def _read_message(
        self, link: PeerLink, kind: int, reader: FrameReader
    ) -> tuple[bytes, Message]:
        name = bytes(reader.take(KEY_SIZE))
        return name, read_message(kind, reader, link.id, self.own)

    def _step(self, link: PeerLink, name: bytes, message: Message) -> None:
        replica = self._heartbeats.get(name)
        if replica is None:
            return
        try:
            replica.step(message)
        except PeerFault as fault:
            self._log.warning(logger, "peer-fault", "node %d made a mistake: %s", link.node, fault)
        except Exception as bug:
            # One broken group must not cost the others their connection.
            report_bug(f"a message for {replica.key} failed", bug)

    # Who is there

    @property
    def hellos(self) -> Mapping[BrokerId, PeerHello]:
        """Of the nodes that are connected."""
        return self._hellos

    def is_alive(self, node: BrokerId) -> bool:
        return node in self._links or node == self.own.node

    def reaches(self, replica: ReplicaId) -> bool:
        """Whether its node is connected with that directory, rather than with a new, empty one."""
        link = self._links.get(replica.node)
        return link is not None and link.id == replica

    def on_peers_changed(self, callback: Callable[[], None]) -> None:
        self._on_peers_changed.append(callback)

    def _peers_changed(self) -> None:
        """Told at the end of the turn: a connection that replaces another changes nothing."""
        if not self._peers_changed_is_due:
            self._peers_changed_is_due = True
            asyncio.get_running_loop().call_soon(self._tell_peers_changed)

    def _tell_peers_changed(self) -> None:
        self._peers_changed_is_due = False
        for callback in self._on_peers_changed:
            try:
                callback()
            except Exception as bug:
                report_bug("handling a change of nodes failed", bug)

    def set_cluster(self, cluster_id: str) -> None:
        """This node belongs to the cluster from now on, and the others hear of it."""
        self._cluster_id = cluster_id
        self._network.set_cluster(cluster_id)
        for link in list(self._links.values()):
            self._tell_cluster(link)
            self._check_cluster(link)

    def _tell_cluster(self, link: PeerLink) -> None:
        if self._cluster_id != NO_CLUSTER:
            writer = link.writer()
            writer.write(bytes((_CLUSTER,)))
            writer.write_text(self._cluster_id)

    def _hear_cluster(self, link: PeerLink, cluster_id: str) -> None:
        if cluster_id != link.hello.cluster_id:
            link.hello = link.hello._replace(cluster_id=cluster_id)
            self._hellos[link.node] = link.hello
            self._peers_changed()
        self._check_cluster(link)

    def _check_cluster(self, link: PeerLink) -> None:
        """Two nodes may have met before either belonged anywhere."""
        theirs = link.hello.cluster_id
        if NO_CLUSTER != theirs != self._cluster_id != NO_CLUSTER:
            self._network.drop(link.node, f"it belongs to cluster {theirs}")

    # Calls

    def serve(self, method: str, handler: Handler) -> None:
        self._calls.serve(method, handler)

    async def call(self, node: BrokerId, method: str, payload: bytes, timeout_s: float) -> bytes:
        """Raises Refused: LEADER_NOT_AVAILABLE if nothing was asked because the node is not
        there, REQUEST_TIMED_OUT if nobody knows, and whatever the other node refused with."""
        return await self._calls.call(self._links.get(node), node, method, payload, timeout_s)

    # Progress of the metadata

    def set_metadata_applied(self, offset: Offset) -> None:
        self._progress.own = offset
        for link in self._links.values():
            self._tell_progress(link)
        self._review_progress()

    def metadata_applied(self, node: BrokerId) -> Offset:
        """How far the node has come, as far as it told; 0 for one that is not connected."""
        if node == self.own.node:
            return self._progress.own
        link = self._links.get(node)
        return Offset(0) if link is None else link.metadata_applied

    async def wait_metadata_applied(self, offset: Offset, timeout_s: float) -> bool:
        """Until every node that is there has come to `offset`; False when the bound passed."""
        return await self._progress.wait(offset, timeout_s, self._links.values())

    def _review_progress(self) -> None:
        self._progress.review(self._links.values())

    def _tell_progress(self, link: PeerLink) -> None:
        link.writer().write(_OFFSET_ITEM.pack(_METADATA_APPLIED, self._progress.own))
