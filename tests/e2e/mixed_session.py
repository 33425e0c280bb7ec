"""The part of a long conversation that is about groups of both protocols (KIP-848): they move from
the classic protocol to the new one and back while they have members.

In a consumer group, members of the classic protocol may choose their ids, as those of the new one
do, so that Kafka's hash tables have a known order. Ids that a broker makes are replaced by names.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.groups.subscriptions import write_assignment
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.heartbeat import HeartbeatRequest
from penstock.protocol.kafka.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
)
from penstock.protocol.kafka.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.protocol.kafka.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from tests.consumer_metadata import write_subscription
from tests.e2e.consumer_session import Owned, Session
from tests.e2e.wire import connect, frame

JOIN_VERSION, SYNC_VERSION, BEAT_VERSION, LEAVE_VERSION = 9, 5, 4, 5
SESSION_TIMEOUT_MS = 600_000
REBALANCE_TIMEOUT_MS = 300_000
PROTOCOLS = ("range",)


class ClassicMembers:
    """What members of the classic protocol know, besides a session's own."""

    def __init__(self, session: Session, group: str) -> None:
        self.session = session
        self.group = group
        self.ids: dict[str, str] = {}
        self.generations: dict[str, int] = {}
        self.owned: dict[str, Owned] = {}

    def _request(self, member: str, **fields: Any) -> JoinGroupRequest:
        topics: Sequence[str] = fields.pop("topics", ("t1",))
        owned: Mapping[str, list[int]] = fields.pop("owned", {})
        version = fields.pop("metadata_version", 3)
        protocols = fields.pop("protocols", PROTOCOLS)
        metadata = fields.pop("metadata", None)
        if metadata is None:
            real = self.session.real
            metadata = write_subscription(
                map(real, topics), {real(t): ps for t, ps in owned.items()}, version=version
            )
        given: dict[str, Any] = {
            "member_id": self.ids.get(member, member),
            "session_timeout_ms": SESSION_TIMEOUT_MS,
            "rebalance_timeout_ms": REBALANCE_TIMEOUT_MS,
            "protocol_type": "consumer",
            **fields,
        }
        return JoinGroupRequest(
            group_id=self.session.prefix + self.group,
            protocols=[JoinGroupRequestProtocol(name=n, metadata=metadata) for n in protocols],
            **given,
        )

    def join(self, member: str, version: int = JOIN_VERSION, **fields: Any) -> Any:
        request = self._request(member, **fields)
        answer = self.session.exchange(ApiKey.JOIN_GROUP, version, request)
        self._remember(member, answer)
        self.session.note(f"classic join: {self.group} {member} {fields}", answer)
        return answer

    def join_together(self, *members: str, **fields: Any) -> None:
        """Each waits for the others."""
        wires = []
        for member in members:
            wires.append(connect(self.session.bootstrap))
            request = self._request(member, **dict(fields))
            wires[-1].send(frame(ApiKey.JOIN_GROUP, JOIN_VERSION, request))
        for member, wire in zip(members, wires, strict=True):
            answer = wire.receive(ApiKey.JOIN_GROUP, JOIN_VERSION)
            self._remember(member, answer)
            self.session.note(f"classic join together: {self.group} {member} {fields}", answer)
            wire.socket.close()

    def _remember(self, member: str, answer: Any) -> None:
        if answer.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.ids[member] = answer.member_id
            self.session.name_member(answer.member_id, member)
        if answer.error_code == ErrorCode.NONE:
            self.generations[member] = answer.generation_id

    def sync(self, member: str, version: int = SYNC_VERSION, **fields: Any) -> Any:
        assigned: Mapping[str, Owned] = fields.pop("assigned", {})
        given: dict[str, Any] = {
            "generation_id": self.generations.get(member, 1),
            "member_id": self.ids.get(member, member),
            "protocol_type": "consumer",
            "protocol_name": PROTOCOLS[0],
            **fields,
        }
        real = self.session.real
        assignments = [
            SyncGroupRequestAssignment(
                member_id=self.ids[name],
                assignment=write_assignment(3, {real(t): ps for t, ps in owned.items()}),
            )
            for name, owned in assigned.items()
        ]
        request = SyncGroupRequest(
            group_id=self.session.prefix + self.group, assignments=assignments, **given
        )
        label = f"classic sync: {self.group} {member} {fields}"
        answer = self.session.ask(label, ApiKey.SYNC_GROUP, version, request)
        if answer.error_code == ErrorCode.NONE:
            self.owned[member] = self.session.named_partitions(answer.assignment)
        return answer

    def beat(self, member: str, **fields: Any) -> Any:
        given: dict[str, Any] = {
            "generation_id": self.generations.get(member, 1),
            "member_id": self.ids.get(member, member),
            **fields,
        }
        request = HeartbeatRequest(group_id=self.session.prefix + self.group, **given)
        label = f"classic beat: {self.group} {member} {fields}"
        return self.session.ask(label, ApiKey.HEARTBEAT, BEAT_VERSION, request)

    def leave(self, *who: tuple[str, str | None]) -> None:
        members = [
            MemberIdentity(member_id=self.ids.get(member, member), group_instance_id=instance)
            for member, instance in who
        ]
        request = LeaveGroupRequest(group_id=self.session.prefix + self.group, members=members)
        label = f"classic leave: {self.group} {who}"
        self.session.ask(label, ApiKey.LEAVE_GROUP, LEAVE_VERSION, request)

    def commit(self, member: str, topic: str, offsets: dict[int, int], epoch: int) -> None:
        self.session.commit(self.group, self.ids.get(member, member), epoch, topic, offsets)

    def rejoin(self, member: str, *, keeps: bool = False, **fields: Any) -> None:
        """A heartbeat, and a join and a sync if that told so; `keeps` as cooperative ones do."""
        if self.beat(member).error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            owned = self.owned.get(member, {}) if keeps else {}
            self.join(member, owned=owned, **fields)
            self.sync(member)

    def settle(self, *members: str, keeps: bool = False, rounds: int = 3, **fields: Any) -> None:
        """All members of both protocols, a few times."""
        for _ in range(rounds):
            self.session.settle(self.group, 1)
            for member in members:
                self.rejoin(member, keeps=keeps, **fields)


def classic_members_in_a_consumer_group(s: Session) -> None:
    g = "g-mixed"
    c = ClassicMembers(s, g)
    s.join(g, "m1", topics=["t1"])
    c.join("m2", protocol_type="connect")
    c.join("m2", protocols=())
    c.join("m2", metadata=b"\x00")
    c.join("new", member_id="")
    c.join("m2")
    s.describe(g)
    c.beat("m2")
    c.sync("m2")
    c.beat("m2", generation_id=77)
    c.beat("m9")
    c.beat("m1", generation_id=s.epochs[g, "m1"])
    c.sync("m2", generation_id=1)
    c.sync("m2", protocol_name="roundrobin")
    c.sync("m2", protocol_type="connect")
    c.sync("m2", version=4, protocol_type=None, protocol_name=None)
    c.sync("m9")
    c.join("m3", protocols=("roundrobin",))
    c.settle("m2")
    s.describe(g)
    c.join("m3", protocols=("roundrobin", "range"), topics=("t1", "t2"))
    c.settle("m2", "m3")
    s.describe(g)
    c.join("m4", version=3, metadata_version=0)
    c.settle("m2", "m3", "m4", rounds=4)
    s.describe(g)
    s.describe_classic(g)
    s.list_groups()
    c.leave(("m9", None), ("m2", None), ("m2", None))
    c.settle("m3", "m4")
    c.leave(("m9", None))
    s.describe(g)
    s.delete(g)


def cooperative_members(s: Session) -> None:
    """They keep what they have while they join, and give up only what they must."""
    g = "g-cooperative"
    c = ClassicMembers(s, g)
    s.join(g, "m1", topics=["t3"])
    s.settle(g)
    c.join("m2", topics=("t3",))
    c.sync("m2")
    c.settle("m2", keeps=True, topics=("t3",))
    s.describe(g)
    c.join("m3", topics=("t3",))
    c.sync("m3")
    c.beat("m2")
    c.join("m2", topics=("t3",), owned=c.owned["m2"])
    c.sync("m2")
    s.describe(g)
    c.beat("m3")
    c.beat("m2")
    c.join("m2", topics=("t3",), owned=c.owned["m2"])
    c.sync("m2")
    s.settle(g)
    c.settle("m2", "m3", keeps=True, topics=("t3",))
    s.describe(g)
    # One that reads something else.
    c.join("m3", topics=("t1",), owned=c.owned["m3"])
    c.sync("m3")
    c.settle("m2", keeps=True, topics=("t3",))
    c.settle("m3", keeps=True, topics=("t1",))
    s.describe(g)


def offsets_of_classic_members(s: Session) -> None:
    g = "g-mixed-offsets"
    c = ClassicMembers(s, g)
    s.join(g, "m1", topics=["t1"])
    c.join("m2")
    c.sync("m2")
    c.settle("m2")
    now = c.generations["m2"]
    own = c.owned["m2"]["t1"][0]
    c.commit("m2", "t1", {own: 5}, now)
    c.commit("m2", "t1", {own: 6}, now + 1)
    c.commit("m2", "t1", {own: 7}, now - 1)
    other = s.owned[g, "m1"]["t1"][0]
    c.commit("m2", "t1", {other: 8}, now - 1)
    s.fetch_offsets(g, "m2", now, "t1")
    s.fetch_offsets(g, "m2", now + 1, "t1")
    s.fetch_offsets(g, None, -1, "t1")


def down_and_up_again(s: Session) -> None:
    """Classic members lead their group again once the last of the new protocol is gone."""
    g = "g-moved"
    c = ClassicMembers(s, g)
    s.join(g, "m1", topics=["t3"])
    for member in ("m2", "m3"):
        c.join(member, topics=("t3",))
        c.sync(member)
    c.settle("m2", "m3", topics=("t3",))
    s.describe(g)
    s.commit(g, "m1", s.epochs[g, "m1"], "t3", {s.owned[g, "m1"]["t3"][0]: 3})
    s.heartbeat("leave", g, "m1", -1)
    s.describe(g)
    s.list_groups("classic")
    c.beat("m2")
    c.beat("m3", generation_id=c.generations["m3"] - 1)
    c.sync("m2")
    s.heartbeat("gone", g, "m1", 1, owned={})
    c.join_together("m2", "m3", topics=("t3",))
    c.beat("m2")
    c.sync("m2", assigned={"m2": {"t3": [0, 1, 2]}, "m3": {"t3": [3, 4, 5]}})
    c.sync("m3")
    c.beat("m2")
    s.describe_classic(g)
    s.join(g, "m1", topics=["t3"])
    s.describe(g)
    c.beat("m2")
    c.beat("m3")
    c.settle("m2", "m3", topics=("t3",), rounds=4)
    s.describe(g)
    s.fetch_offsets(g, None, -1, "t3")
    # The last one of the new protocol is removed as an operator would.
    c.leave(("m1", None))
    s.epochs.pop((g, "m1"))
    s.describe(g)
    c.beat("m2")
    c.leave(("m2", None), ("m3", None))
    s.list_groups("classic", states=("Empty",))
    s.delete(g)


def upgrades_that_fail(s: Session) -> None:
    g = "g-not-moved"
    c = ClassicMembers(s, g)
    c.join("a", member_id="", version=3)
    c.sync("a", assigned={"a": {"t1": [0, 1, 2, 3]}})
    s.join(g, "m1", regex="[")
    s.join(g, "m1", topics=["t1"], server_assignor="nobody")
    s.heartbeat("unknown", g, "m1", 1, owned={})
    s.heartbeat("leave", g, "m1", -1)
    c.beat("a")
    s.describe(g)
    s.join(g, "m1", topics=["t1"])
    c.settle("a", rounds=4)
    s.describe(g)
    other = ClassicMembers(s, "g-connect")
    other.join("a", member_id="", version=3, protocol_type="connect")
    s.join("g-connect", "m1", topics=["t1"])
    third = ClassicMembers(s, "g-strange")
    third.join("a", member_id="", version=3, metadata=b"\x00\x01")
    s.join("g-strange", "m1", topics=["t1"])


def static_members_of_both(s: Session) -> None:
    """The same instance comes back with the other protocol."""
    g = "g-mixed-static"
    c = ClassicMembers(s, g)
    s.join(g, "m5", topics=["t1"], instance_id="i5")
    s.join(g, "m1", topics=["t1"])
    s.settle(g)
    c.join("one", member_id="", group_instance_id="i5")
    s.epochs.pop((g, "m5"))
    c.beat("one", group_instance_id="i5")
    c.sync("one", group_instance_id="i5")
    c.beat("one", group_instance_id="i5", member_id="m5")
    c.beat("one", group_instance_id="i9")
    c.join("one", group_instance_id="i5", member_id="m5")
    c.join("one", group_instance_id="i9")
    c.leave(("m5", "i5"), ("m5", "i9"))
    s.heartbeat("the one before", g, "m5", 1, owned={}, instance_id="i5")
    s.settle(g)
    s.describe(g)
    # Back to the new protocol.
    s.join(g, "m6", topics=["t1"], instance_id="i5")
    c.beat("one", group_instance_id="i5")
    s.settle(g)
    s.describe(g)
    # And the group is a classic one once all instances are.
    s.heartbeat("leave", g, "m1", -1)
    s.settle(g)
    c.join("two", member_id="", group_instance_id="i5")
    s.epochs.pop((g, "m6"))
    s.describe(g)
    c.beat("two", group_instance_id="i5")
    c.sync("two", group_instance_id="i5")
    c.beat("two", group_instance_id="i5")
    c.leave(("", "i5"))
    s.list_groups("classic")


MIXED = (
    classic_members_in_a_consumer_group,
    cooperative_members,
    offsets_of_classic_members,
    down_and_up_again,
    upgrades_that_fail,
    static_members_of_both,
)
