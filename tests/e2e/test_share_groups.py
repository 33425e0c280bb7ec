"""Share groups in the commands and tools that operators use, against a real broker."""

import json
from typing import Any

import pytest

from penstock.groups.partitioner import partition_of
from penstock.model.ids import GroupId
from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.e2e.clients.java import Java
from tests.e2e.clients.java.files import partition_folder
from tests.e2e.commands import Shell, fresh
from tests.e2e.conftest import MakeTopic
from tests.e2e.processes import Broker
from tests.e2e.wire import Wire, connect, frame
from tests.waiting import wait_until

pytest_plugins = ("tests.e2e.clients.java.fixtures",)

GROUPS = "org.apache.kafka.tools.GroupsCommand"
SHARE_GROUPS = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
DUMP = "org.apache.kafka.tools.DumpLogSegments"
OFFSETS_TOPIC = "__consumer_offsets"
API, VERSION = ApiKey.SHARE_GROUP_HEARTBEAT, 1


class Member:
    """Keeps to the protocol of a share group, and fetches nothing."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self._wire: Wire = connect(bootstrap)
        self.group = group
        self.epoch = 0
        # The answer to the join has the partitions, unless their queues take long to make.
        if not self._has_partitions([topic]):
            wait_until("partitions", self._has_partitions)

    def _say(self, epoch: int, topics: list[str] | None = None) -> Any:
        request = ShareGroupHeartbeatRequest(
            group_id=self.group, member_id="m1", member_epoch=epoch, subscribed_topic_names=topics
        )
        self._wire.send(frame(API, VERSION, request))
        answer = self._wire.receive(API, VERSION)
        assert answer.error_code == 0, answer
        return answer

    def _has_partitions(self, topics: list[str] | None = None) -> bool:
        answer = self._say(self.epoch, topics)
        self.epoch = answer.member_epoch
        return bool(answer.assignment and answer.assignment.topic_partitions)

    def leave(self) -> None:
        self._say(-1)
        self._wire.socket.close()


def test_the_command_line_shows_the_type_of_a_group(broker: Broker, make_topic: MakeTopic) -> None:
    shell, group, topic = Shell(broker.bootstrap), fresh("workers"), make_topic(partitions=2)
    member = Member(broker.bootstrap, group, topic)
    listed = {"group": group, "type": "share", "state": "stable", "members": 1, "lag": None}
    assert listed in shell.json("group", "list")
    text = shell.run("group", "describe", group)
    assert f"Group {group} (share) is stable, 1 member, epoch 3" in text
    assert f"{topic}-0 {topic}-1" in text
    described = shell.json("group", "describe", group)
    assert (described["type"], described["assignor"]) == ("share", "simple")
    assert "is a share group" in shell.fails("group", "reset", group, "--to", "0")
    assert shell.fails("group", "delete", group)
    member.leave()
    shell.run("group", "delete", group)
    assert group not in shell.run("group", "list")


@pytest.mark.timeout(300)
@pytest.mark.xdist_group("java")
def test_kafkas_tools_list_and_describe_share_groups(
    java: Java, broker: Broker, make_topic: MakeTopic
) -> None:
    def run(main: str, *words: str) -> str:
        return java.tool(main, "--bootstrap-server", broker.bootstrap, *words)

    group, topic = fresh("workers"), make_topic(partitions=2)
    member = Member(broker.bootstrap, group, topic)
    rows = [line.split() for line in run(GROUPS, "--list").splitlines()]
    assert [group, "Share", "share"] in rows
    assert group in run(SHARE_GROUPS, "--list").splitlines()
    state = run(SHARE_GROUPS, "--describe", "--group", group, "--state").split()
    assert "Stable" in state
    members = run(SHARE_GROUPS, "--describe", "--group", group, "--members")
    assert "m1" in members
    assert topic in members
    member.leave()


@pytest.mark.timeout(300)
@pytest.mark.xdist_group("java")
def test_kafka_reads_what_is_stored_of_share_groups(
    java: Java, broker: Broker, make_topic: MakeTopic
) -> None:
    """Every kind of record, with the names that Kafka has for their fields."""
    group, topic = fresh("workers"), make_topic(partitions=2)
    member = Member(broker.bootstrap, group, topic)
    member.leave()
    Shell(broker.bootstrap).run("group", "delete", group)
    described = java.call("describe_topic", broker.bootstrap, topic=OFFSETS_TOPIC)
    number = partition_of(GroupId(group), len(described["partitions"]))
    files = partition_folder(java, broker, OFFSETS_TOPIC, number).glob("*.log")
    names = ",".join(map(str, files))
    printed = java.tool(DUMP, "--offsets-decoder", "--files", names)
    found: dict[str, list[Any]] = {}
    for line in printed.splitlines():
        key, _, value = line.partition(" payload: ")
        if f'"group":"{group}"' in key or f'"groupId":"{group}"' in key:
            kind = json.loads(key[key.index("{") :])["type"]
            found.setdefault(kind, []).append(json.loads(value) if "{" in value else None)
    assert found.keys() == {"10", "11", "12", "13", "14", "15"}
    # Each is there with its value, and gone in the end.
    for values in found.values():
        assert values[0] is not None
        assert values[-1] is None
    kept = [each["data"] for each in found["15"] if each and each["data"]["initializedTopics"]]
    assert kept[0]["initializedTopics"][0]["topicName"] == topic
    assert kept[0]["initializedTopics"][0]["partitions"] == [0, 1]
