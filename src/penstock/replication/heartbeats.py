"""Heartbeats per pair of nodes, which stand for all groups that the one leads and the other has.

Each side of a connection tells the other which groups it leads and in which terms: all of them at
first and every few seconds, and every change at once. After that a beat is a number. The receiver
tells each of the sender's groups that it has a copy of that its leader lives, and answers with the
number, with the groups that accept this leader from now on, and with those that do not; the sender
counts the answer for the groups that accepted. All of it belongs to the connection and ends with
it, so nothing that was true of an earlier start of a node counts for a later one.

Both directions share one frame per tick: what arrived since the last tick is answered with the next
beat. Idle groups cost next to nothing. An answer counts at once for groups that something was sent
to, whose leader waits for it, and in turns for the others. And a follower whose leader is heard
rests: a tick and a heartbeat would cancel each other, so it gets neither, but is asked in turns
whether it still follows. A leader without peers rests too, until something about it changes.
"""

from typing import Final

from penstock.model.ids import BrokerId, PartitionId, ReplicaId, Term
from penstock.replication.commit import report_bug
from penstock.replication.group_replica import GroupReplica
from penstock.replication.leaders import LeaderInfo, LeaderTable
from penstock.replication.peer_beats import (
    ACTIVE_TICKS,
    ANSWER,
    BEAT,
    LEADS,
    LOST,
    NUMBER,
    Announced,
    Followed,
    Led,
    PeerBeats,
    Turns,
    read_groups,
    read_leads,
    write_groups,
    write_leads,
    write_number,
)
from penstock.replication.peer_frames import KEY_SIZE, DecodeError, FrameReader, GroupNames
from penstock.replication.peer_link import PeerLink

# A full list again, in ticks: repairs what a bug or an odd moment may have left wrong. The groups
# that are led are looked at again in turns over the same time, so that no tick takes long.
REPAIR_TICKS: Final = 100


class Heartbeats:
    def __init__(self, own: ReplicaId, leaders: LeaderTable, names: GroupNames) -> None:
        self._own = own
        self._leaders = leaders
        self._names = names
        self._replicas: dict[bytes, GroupReplica] = {}
        # All but those that rest.
        self._awake: dict[bytes, GroupReplica] = {}
        self._led: dict[bytes, Led] = {}
        self._peers: dict[BrokerId, PeerBeats] = {}
        self._ticks_until_repair = REPAIR_TICKS
        self._repair_turns = Turns(REPAIR_TICKS)

    # Groups of this node

    def add(self, replica: GroupReplica) -> None:
        name = self._names.name(replica.key)
        self._replicas[name] = self._awake[name] = replica
        for peer in self._peers.values():
            term = peer.led_by_peer.get(name)
            if term is not None:
                peer.followed[name] = Followed(replica, term)
        self.announce(replica)

    def remove(self, key: PartitionId) -> None:
        name = self._names.name(key)
        self._replicas.pop(name, None)
        self._awake.pop(name, None)
        self._lose(name)
        for peer in self._peers.values():
            peer.forget(name)

    def get(self, name: bytes) -> GroupReplica | None:
        return self._replicas.get(name)

    def replicas(self) -> list[GroupReplica]:
        return list(self._replicas.values())

    def announce(self, replica: GroupReplica) -> None:
        """Whether it leads, its term or its in-sync set may have changed.

        A leader is named once it knows what is committed: before that it could not serve everybody,
        and it beats for itself.
        """
        name = self._names.name(replica.key)
        if self._replicas.get(name) is not replica:
            return
        self._wake(name)
        if not replica.is_leader:
            self._lose(name)
            return
        if not replica.is_settled:
            return
        led, known = Led(replica), self._led.get(name)
        if not led.differs_from(known):
            return
        self._led[name] = led
        self._leaders.learn(replica.key, LeaderInfo(led.term, self._own.node, led.in_sync))
        for peer in self._peers.values():
            if known is None or known.term != led.term:
                peer.refuse(name)
            write_leads(peer.link.writer(), ((name, led),), is_all=False)

    def _lose(self, name: bytes) -> None:
        if self._led.pop(name, None) is None:
            return
        for peer in self._peers.values():
            peer.refuse(name)
            peer.link.writer().write(bytes((LOST,)) + name)

    def _wake(self, name: bytes) -> None:
        """Whatever it accepted, it is asked again."""
        replica = self._replicas.get(name)
        if replica is not None and name not in self._awake:
            self._awake[name] = replica
            for peer in self._peers.values():
                peer.wake(name)

    # Connections

    def connected(self, link: PeerLink) -> None:
        self._peers[link.node] = PeerBeats(link)
        write_leads(link.writer(), self._led.items(), is_all=True)

    def disconnected(self, node: BrokerId) -> None:
        peer = self._peers.pop(node, None)
        if peer is not None:
            for name in peer.resting:
                self._wake(name)

    # Beating

    def tick(self) -> None:
        for name, replica in list(self._awake.items()):
            if _tick(replica):
                self._awake.pop(name, None)
        self._repair_some()
        for peer in list(self._peers.values()):
            if peer.has_heard:
                peer.has_heard = False
                self._hear(peer)
            else:
                for followed in list(peer.resting.values()):
                    _tick(followed.replica)
            peer.sent += 1
            write_number(peer.link.writer(), BEAT, peer.sent)

    def _repair_some(self) -> None:
        for name in self._repair_turns.take(self._led):
            led = self._led.get(name)
            if led is not None:
                self.announce(led.replica)
        self._ticks_until_repair -= 1
        if self._ticks_until_repair > 0:
            return
        self._ticks_until_repair = REPAIR_TICKS
        for peer in self._peers.values():
            write_leads(peer.link.writer(), self._led.items(), is_all=True)

    def heard(self, node: BrokerId) -> None:
        """Something arrived from the node."""
        peer = self._peers.get(node)
        if peer is not None:
            peer.has_heard = True

    def sent_append(self, node: BrokerId, name: bytes) -> None:
        """The group's leader waits for news from the node."""
        peer = self._peers.get(node)
        if peer is not None:
            peer.active[name] = ACTIVE_TICKS

    def _hear(self, peer: PeerBeats) -> None:
        """Its groups here learn that it lives; it learns which of them did."""
        accepted = [name for name, followed in peer.followed.items() if _accepts(followed, peer)]
        for name in peer.rest_turns.take(peer.resting):
            followed = peer.resting.get(name)
            if followed is not None and not _accepts(followed, peer):
                self._awake[name] = followed.replica
                peer.wake(name)
        for name in accepted:
            peer.resting[name] = peer.followed.pop(name)
            self._awake.pop(name, None)
        refused = list(peer.followed)
        writer = peer.link.writer()
        write_number(writer, ANSWER, peer.received)
        write_groups(writer, [(name, peer.resting[name].term) for name in accepted])
        write_groups(writer, [(name, peer.followed[name].term) for name in refused])

    # What arrives

    def read(self, kind: int, node: BrokerId, reader: FrameReader) -> None:
        """Raises DecodeError."""
        peer = self._peers[node]
        if kind == BEAT:
            (peer.received,) = reader.unpack(NUMBER)
        elif kind == ANSWER:
            self._read_answer(peer, reader)
        elif kind == LEADS:
            self._read_leads(peer, reader)
        elif kind == LOST:
            name = bytes(reader.take(KEY_SIZE))
            peer.led_by_peer.pop(name, None)
            self._wake(name)
            peer.forget(name)
        else:
            raise DecodeError(f"there is no item of kind {kind}")

    def _read_leads(self, peer: PeerBeats, reader: FrameReader) -> None:
        is_all, groups = read_leads(reader)
        before = peer.led_by_peer
        if is_all:
            for name in list(peer.resting):
                self._wake(name)
            peer.led_by_peer, peer.followed = {}, {}
        for group in groups:
            self._learn(peer, group)
            if is_all or before.get(group.name) != group.term:
                self._follow(peer, group.name, group.term)

    def _learn(self, peer: PeerBeats, group: Announced) -> None:
        info = LeaderInfo(group.term, peer.link.node, group.in_sync)
        self._leaders.learn(self._names.id(group.name), info)

    def _follow(self, peer: PeerBeats, name: bytes, term: Term) -> None:
        peer.led_by_peer[name] = term
        self._wake(name)
        peer.forget(name)
        replica = self._replicas.get(name)
        if replica is not None:
            peer.followed[name] = Followed(replica, term)

    def _read_answer(self, peer: PeerBeats, reader: FrameReader) -> None:
        (number,) = reader.unpack(NUMBER)
        if number > peer.sent:
            raise DecodeError(f"beat {number} was answered before it was sent")
        for name, term in read_groups(reader):
            led = self._led.get(name)
            if led is not None and led.term == term:
                peer.accept(name, led.replica, term)
        refused = read_groups(reader)
        for name, _ in refused:
            peer.refuse(name)
        sender = peer.link.id
        for acknowledge, term in peer.take_acknowledged():
            try:
                acknowledge(sender, term)
            except Exception as bug:
                report_bug("counting a heartbeat failed", bug)
        for name, term in refused:
            self._tell_refused(name, sender, term)

    def _tell_refused(self, name: bytes, sender: ReplicaId, term: Term) -> None:
        led = self._led.get(name)
        if led is None or led.term != term:
            return
        try:
            led.replica.heartbeat_refused(sender, term)
        except Exception as bug:
            report_bug("a refused heartbeat failed", bug)


def _tick(replica: GroupReplica) -> bool:
    """Says whether it may rest."""
    try:
        return replica.tick()
    except Exception as bug:
        report_bug("a replica's tick failed", bug)
        return False


def _accepts(followed: Followed, peer: PeerBeats) -> bool:
    """Whether the group follows the other node; if so it has heard from its leader now."""
    try:
        return followed.replica.heartbeat_received(peer.link.id, followed.term)
    except Exception as bug:
        report_bug("a heartbeat failed", bug)
        return False
