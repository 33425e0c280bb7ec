"""Proves on three nodes that a client generated from the .proto alone can run every call, and that
errors have their details; and that a leader's death loses and doubles nothing."""

import itertools
import queue
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import httpx
import pytest
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from penstock.testing import ProcessCluster
from tests.e2e.clients import grpc_go
from tests.e2e.grpc_client import Client, Generated, methods
from tests.waiting import wait_until

# One after the other: two clusters at once on two cores would measure each other.
pytestmark = [pytest.mark.xdist_group("cluster-clients"), pytest.mark.timeout(240)]

WAIT_S = 60.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    with ProcessCluster(tmp_path_factory.mktemp("grpc-cluster"), nodes=3) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Generated:
    return Generated(tmp_path_factory.mktemp("generated"))


@pytest.fixture
def client(cluster: ProcessCluster, generated: Generated) -> Iterator[Client]:
    with Client(generated, cluster.nodes[1].grpc) as client:
        yield client


class Talk:
    """A call whose both sides are streams."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self._requests: queue.Queue[Any] = queue.Queue()
        self.replies = method(iter(self._requests.get, None), timeout=WAIT_S)

    def say(self, request: Any) -> None:
        self._requests.put(request)

    def end(self) -> None:
        self._requests.put(None)

    def hear(self, kind: str) -> Any:
        """The next reply, which must be of this kind."""
        reply = next(self.replies)
        (one_of,) = reply.DESCRIPTOR.oneofs
        assert reply.WhichOneof(one_of.name) == kind, reply
        return getattr(reply, kind)


def error_info(error: grpc.RpcError) -> error_details_pb2.ErrorInfo:
    details = dict(error.trailing_metadata())["grpc-status-details-bin"]
    status = status_pb2.Status.FromString(details)
    assert status.message == error.details()
    assert status.code == error.code().value[0]
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    return info


# Every call


def administer(client: Client) -> None:
    pb, administration = client.messages, client.administration
    made = administration.CreateTopic(
        pb.CreateTopicRequest(
            name="all", partitions=1, replication_factor=3, settings={"retention.ms": "1000000"}
        )
    )
    assert (made.name, made.partitions, made.replication_factor) == ("all", 1, 3)
    assert administration.GrowTopic(pb.GrowTopicRequest(name="all", partitions=2)).partitions == 2
    described = administration.DescribeTopic(pb.DescribeTopicRequest(name="all"))
    assert described.settings == {"retention.ms": "1000000"}
    assert [sorted(each.replicas) for each in described.partitions] == [[1, 2, 3]] * 2
    change = pb.ChangeSettingsRequest(
        kind="topic",
        name="all",
        changes=[
            pb.SettingChange(name="max.message.bytes", value="123456"),
            pb.SettingChange(name="retention.ms"),
        ],
    )
    administration.ChangeSettings(change)
    found = administration.DescribeSettings(pb.DescribeSettingsRequest(kind="topic", name="all"))
    settings = {each.name: each for each in found.settings}
    assert settings["max.message.bytes"].value == "123456"
    assert settings["max.message.bytes"].source == "topic"
    assert settings["retention.ms"].source != "topic"
    topics = administration.ListTopics(pb.ListTopicsRequest()).topics
    assert "all" in [each.name for each in topics]
    nodes = administration.DescribeCluster(pb.DescribeClusterRequest()).nodes
    assert [each.node for each in nodes if each.is_alive] == [1, 2, 3]
    assert sum(each.is_controller for each in nodes) == 1
    node = administration.DescribeNode(pb.DescribeNodeRequest())
    assert (node.node, node.unready) == (1, "")


def stream(client: Client) -> None:
    pb, streams = client.messages, client.streams
    record = pb.NewRecord(
        key=b"k",
        value=b"v",
        partition=1,
        timestamp_ms=5,
        headers=[pb.Header(name="a", value=b"b"), pb.Header(name="null")],
    )
    records = [record, pb.NewRecord(value=b"w", partition=0), pb.NewRecord(key=b"", partition=1)]
    written = streams.Publish(pb.PublishRequest(topic="all", records=records))
    assert (list(written.partitions), list(written.offsets)) == ([1, 0, 1], [0, 0, 1])
    fetched = streams.Fetch(pb.FetchRequest(topic="all", partition=1))
    first, second = fetched.records
    assert (first.key, first.value, first.timestamp_ms) == (b"k", b"v", 5)
    assert [(each.name, each.HasField("value")) for each in first.headers] == [
        ("a", True),
        ("null", False),
    ]
    assert second.HasField("key")
    assert not second.HasField("value")
    assert (fetched.next_offset, fetched.high_watermark, fetched.log_start_offset) == (2, 2, 0)
    for start, offset in (
        (pb.Start(edge=pb.EDGE_LATEST), 2),
        (pb.Start(edge=pb.EDGE_EARLIEST), 0),
        (pb.Start(timestamp_ms=6), 1),
    ):
        sought = streams.Seek(pb.SeekRequest(topic="all", partition=1, start=start))
        assert sought.offset == offset

    talk = Talk(streams.PublishStream)
    keyed = pb.PublishRequest(
        records=[pb.NewRecord(value=b"once", partition=1)], idempotency_key="one"
    )
    talk.say(pb.PublishRequest(topic="all", records=[pb.NewRecord(value=b"x", partition=1)] * 3))
    talk.say(pb.PublishRequest(records=[pb.NewRecord(value=b"x", partition=7)]))
    talk.say(keyed)
    talk.say(keyed)
    assert list(talk.hear("written").offsets) == [2, 3, 4]
    problem = talk.hear("problem")
    assert (problem.code, problem.reason) == (3, "INVALID_REQUEST")
    assert list(talk.hear("written").offsets) == [5]
    assert list(talk.hear("written").offsets) == [5]
    talk.end()
    assert list(talk.replies) == []


def subscribe(client: Client) -> None:
    pb, streams, groups = client.messages, client.streams, client.groups
    start = pb.StartSubscription(
        topic="all", partitions=[1], group="readers", start=pb.Start(offset=1), credit=2
    )
    talk = Talk(streams.Subscribe)
    talk.say(pb.SubscribeRequest(start=start))
    assert [(each.partition, each.offset) for each in talk.hear("started").positions] == [(1, 1)]
    pushed = talk.hear("records")
    assert ([each.offset for each in pushed.records], pushed.next_offset) == ([1, 2], 3)
    position = pb.Position(partition=1, offset=pushed.next_offset)
    talk.say(pb.SubscribeRequest(commit=pb.Positions(positions=[position])))
    # There is no credit, so nothing but the commit's answer can come.
    assert talk.hear("committed").positions[0] == position
    talk.say(pb.SubscribeRequest(credit=100))
    assert [each.offset for each in talk.hear("records").records] == [3, 4, 5]
    streams.Publish(
        pb.PublishRequest(topic="all", records=[pb.NewRecord(value=b"new", partition=1)])
    )
    assert [each.value for each in talk.hear("records").records] == [b"new"]
    talk.end()
    assert list(talk.replies) == []

    again = Talk(streams.Subscribe)
    again.say(pb.SubscribeRequest(start=start))
    assert again.hear("started").positions[0] == position
    again.replies.cancel()

    read = groups.ReadGroupOffsets(pb.ReadGroupOffsetsRequest(group_id="readers"))
    assert [(each.topic, each.partition, each.offset) for each in read.offsets] == [("all", 1, 3)]
    groups.CommitGroupOffsets(
        pb.CommitGroupOffsetsRequest(
            group_id="readers", offsets=[pb.GroupOffset(topic="all", partition=0, offset=1)]
        )
    )
    read = groups.ReadGroupOffsets(pb.ReadGroupOffsetsRequest(group_id="readers"))
    assert sorted((each.partition, each.offset) for each in read.offsets) == [(0, 1), (1, 3)]
    listed = groups.ListGroups(pb.ListGroupsRequest())
    assert "readers" in [each.group_id for each in listed.groups]
    described = groups.DescribeGroup(pb.DescribeGroupRequest(group_id="readers"))
    assert described.summary.group_id == "readers"
    groups.DeleteGroup(pb.DeleteGroupRequest(group_id="readers"))


def queue_up(client: Client) -> None:
    pb, queues = client.messages, client.queues
    of = {"topic": "jobs", "group": "workers"}
    client.administration.CreateTopic(
        pb.CreateTopicRequest(name="jobs", partitions=1, replication_factor=3)
    )
    dead = {"errors.deadletterqueue.topic.name": "dlq.jobs"}
    client.administration.CreateTopic(
        pb.CreateTopicRequest(
            name="dlq.jobs", settings={"errors.deadletterqueue.group.enable": "true"}
        )
    )
    changes = [pb.SettingChange(name=name, value=value) for name, value in dead.items()]
    client.administration.ChangeSettings(
        pb.ChangeSettingsRequest(kind="group", name="workers", changes=changes)
    )
    values = [b"%d" % number for number in range(8)]
    records = [pb.NewRecord(value=value) for value in values]
    client.streams.Publish(pb.PublishRequest(topic="jobs", records=records))

    polled = queues.Poll(pb.PollRequest(**of, records_max=4, wait_ms=10_000, lease_ms=60_000))
    assert polled.lease_ms == 60_000
    assert [(each.record.value, each.attempt) for each in polled.messages] == [
        (value, 1) for value in values[:4]
    ]
    tokens = [each.token for each in polled.messages]
    for method, request in (
        (queues.Ack, pb.AckRequest(**of, tokens=tokens[:1])),
        (queues.Nack, pb.NackRequest(**of, tokens=tokens[1:2], delay_ms=0)),
        (queues.Extend, pb.ExtendRequest(**of, tokens=tokens[2:3], lease_ms=120_000)),
        (queues.Reject, pb.RejectRequest(**of, tokens=tokens[3:4])),
    ):
        (outcome,) = method(request).outcomes
        assert (outcome.outcome, outcome.token) == ("ok", request.tokens[0])
    outcomes = queues.Ack(pb.AckRequest(**of, tokens=[tokens[0], "nonsense"])).outcomes
    assert [each.outcome for each in outcomes] == ["done", "malformed"]
    assert outcomes[1].detail.endswith(".")

    peeked = queues.Peek(pb.PeekRequest(**of, records_max=2)).messages
    assert [(each.record.value, each.attempt, each.token) for each in peeked] == [
        (b"1", 1, ""),
        (b"4", 0, ""),
    ]
    wait_until(
        "the rejected one is a dead letter",
        lambda: sum(each.dead for each in queues.Stats(pb.StatsRequest(**of)).partitions) == 1,
    )
    state = queues.Stats(pb.StatsRequest(**of))
    assert sum(each.leased for each in state.partitions) == 1
    redriven = queues.Redrive(pb.RedriveRequest(**of))
    assert redriven.reopened + redriven.copied == 1
    assert redriven.is_finished
    queues.Pause(pb.PauseRequest(**of))
    # A node learns of it from the cluster's log, a moment later.
    wait_until("it is paused", lambda: queues.Stats(pb.StatsRequest(**of)).is_paused)
    queues.Resume(pb.ResumeRequest(**of))
    wait_until("it goes on", lambda: not queues.Stats(pb.StatsRequest(**of)).is_paused)

    talk = Talk(queues.Subscribe)
    talk.say(
        pb.QueueSubscribeRequest(start=pb.StartQueueSubscription(**of, lease_ms=60_000, credit=4))
    )
    got: list[Any] = []
    while len(got) < 4:
        got += talk.hear("messages").messages
    tokens = [each.token for each in got]
    talk.say(pb.QueueSubscribeRequest(ack=pb.Tokens(tokens=tokens[:1])))
    assert [each.outcome for each in talk.hear("settled").outcomes] == ["ok"]
    talk.say(pb.QueueSubscribeRequest(nack=pb.NackTokens(tokens=tokens[1:2], delay_ms=60_000)))
    assert [each.outcome for each in talk.hear("settled").outcomes] == ["ok"]
    talk.say(pb.QueueSubscribeRequest(extend=pb.ExtendTokens(tokens=tokens[2:3])))
    assert [each.outcome for each in talk.hear("settled").outcomes] == ["ok"]
    talk.say(pb.QueueSubscribeRequest(reject=pb.Tokens(tokens=["nonsense"])))
    assert [each.outcome for each in talk.hear("settled").outcomes] == ["malformed"]
    talk.replies.cancel()
    # What was pushed and not settled is given back, long before its lease ends.
    wait_until(
        "the others are there again",
        lambda: sum(each.leased for each in queues.Stats(pb.StatsRequest(**of)).partitions) == 1,
    )
    purged = queues.Purge(pb.PurgeRequest(**of)).count
    assert purged >= 4
    assert not queues.Poll(pb.PollRequest(**of, records_max=4)).messages


def lock(client: Client) -> None:
    pb, locks = client.messages, client.locks
    held = locks.AcquireLock(pb.AcquireLockRequest(name="door", owner="me", lease_ms=60_000))
    assert (held.name, held.owner, held.lease_ms) == ("door", "me", 60_000)
    error = refusal(locks.AcquireLock, pb.AcquireLockRequest(name="door", owner="you"))
    assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert error_info(error).reason == "LOCK_HELD"
    proof = {"name": "door", "owner": "me", "fencing_token": held.fencing_token}
    assert locks.RenewLock(pb.RenewLockRequest(**proof)).fencing_token == held.fencing_token
    assert [each.name for each in locks.ListLocks(pb.ListLocksRequest()).locks] == ["door"]
    assert locks.DescribeLock(pb.DescribeLockRequest(name="door")).lock.owner == "me"
    waiting = locks.AcquireLock.future(
        pb.AcquireLockRequest(name="door", owner="you", wait_ms=30_000)
    )
    wait_until(
        "somebody waits",
        lambda: locks.DescribeLock(pb.DescribeLockRequest(name="door")).lock.waiters == 1,
    )
    locks.ReleaseLock(pb.ReleaseLockRequest(**proof))
    taken = waiting.result(timeout=WAIT_S)
    assert taken.fencing_token > held.fencing_token
    error = refusal(locks.ReleaseLock, pb.ReleaseLockRequest(**proof))
    assert error_info(error).reason == "LOCK_NOT_HELD"
    locks.ReleaseLock(
        pb.ReleaseLockRequest(name="door", owner="you", fencing_token=taken.fencing_token)
    )
    assert not locks.DescribeLock(pb.DescribeLockRequest(name="door")).HasField("lock")


def test_a_client_generated_from_the_proto_runs_every_call(
    client: Client, generated: Generated
) -> None:
    administer(client)
    stream(client)
    subscribe(client)
    queue_up(client)
    lock(client)
    client.administration.DeleteTopic(client.messages.DeleteTopicRequest(name="all"))
    assert methods(generated) == client.called


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("go") is None, reason="not installed: go")
def test_a_client_in_go_runs_every_call(cluster: ProcessCluster, generated: Generated) -> None:
    assert grpc_go.run_every_call(cluster.nodes[2].grpc) == methods(generated)


# Errors


def refusal(method: Callable[..., Any], request: Any, **given: Any) -> grpc.RpcError:
    with pytest.raises(grpc.RpcError) as caught:
        method(request, **given)
    return caught.value


def test_errors_have_a_code_a_sentence_and_a_reason(client: Client) -> None:
    pb, streams = client.messages, client.streams
    record = pb.NewRecord(value=b"v")
    client.administration.CreateTopic(pb.CreateTopicRequest(name="bad", partitions=2))
    for method, request, code, reason in (
        (streams.Fetch, pb.FetchRequest(topic="none"), "NOT_FOUND", "UNKNOWN_TOPIC_OR_PARTITION"),
        (streams.Fetch, pb.FetchRequest(topic="bad"), "INVALID_ARGUMENT", "INVALID_REQUEST"),
        (
            streams.Fetch,
            pb.FetchRequest(topic="bad", partition=0, start=pb.Start(offset=9)),
            "OUT_OF_RANGE",
            "OFFSET_OUT_OF_RANGE",
        ),
        (streams.Publish, pb.PublishRequest(topic="bad"), "INVALID_ARGUMENT", "INVALID_REQUEST"),
        (
            streams.Publish,
            pb.PublishRequest(topic="bad/name", records=[record]),
            "INVALID_ARGUMENT",
            "INVALID_TOPIC",
        ),
        (
            client.administration.CreateTopic,
            pb.CreateTopicRequest(name="bad"),
            "ALREADY_EXISTS",
            "TOPIC_ALREADY_EXISTS",
        ),
        (
            client.queues.Poll,
            pb.PollRequest(topic="bad", group="g", lease_ms=5),
            "INVALID_ARGUMENT",
            "INVALID_REQUEST",
        ),
        (
            client.groups.DescribeGroup,
            pb.DescribeGroupRequest(group_id="none"),
            "NOT_FOUND",
            "GROUP_ID_NOT_FOUND",
        ),
    ):
        error = refusal(method, request)
        assert error.code().name == code, error
        info = error_info(error)
        assert (info.reason, info.domain) == (reason, "penstock")
        assert error.details().endswith(".")


def test_calls_and_their_errors_are_counted(client: Client, cluster: ProcessCluster) -> None:
    with pytest.raises(grpc.RpcError):
        client.streams.Fetch(client.messages.FetchRequest(topic="none"))
    text = httpx.get(f"http://{cluster.nodes[1].http}/metrics", timeout=WAIT_S).text
    assert 'penstock_request_seconds_count{door="grpc",api="Streams/Fetch"}' in text
    counted = 'penstock_request_errors_total{door="grpc",api="Streams/Fetch",code="NOT_FOUND"}'
    assert counted in text


def test_a_bad_field_is_named(client: Client) -> None:
    pb = client.messages
    record = pb.NewRecord(value=b"v", timestamp_ms=-5)
    error = refusal(client.streams.Publish, pb.PublishRequest(topic="t", records=[record]))
    details = dict(error.trailing_metadata())["grpc-status-details-bin"]
    bad = error_details_pb2.BadRequest()
    assert status_pb2.Status.FromString(details).details[1].Unpack(bad)
    assert [each.field for each in bad.field_violations] == ["records[0].timestamp_ms"]


def test_bytes_that_are_no_message_are_refused(client: Client) -> None:
    call = client.plain_channel.unary_unary("/penstock.v1.Streams/Publish")
    error = refusal(call, b"\xff\xff\xff")
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    talk = client.plain_channel.stream_stream("/penstock.v1.Streams/PublishStream")
    error = refusal(lambda requests: list(talk(requests)), iter([b"\xff\xff"]))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    error = refusal(client.plain_channel.unary_unary("/penstock.v1.Streams/Nothing"), b"")
    assert error.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_deadline_bounds_what_is_waited_for(client: Client) -> None:
    """The answer, with nothing in it, comes before the deadline."""
    pb = client.messages
    client.administration.CreateTopic(pb.CreateTopicRequest(name="still", partitions=1))
    fetched = client.streams.Fetch(pb.FetchRequest(topic="still", wait_ms=30_000), timeout=2.0)
    assert not fetched.records
    # The first poll makes the queue, which may take longer.
    client.queues.Poll(pb.PollRequest(topic="still", group="still"))
    request = pb.PollRequest(topic="still", group="still", wait_ms=30_000)
    assert not client.queues.Poll(request, timeout=2.0).messages


def has_queue(client: Client, of: dict[str, str]) -> bool:
    try:
        return bool(client.queues.Stats(client.messages.StatsRequest(**of)).partitions)
    except grpc.RpcError as error:
        if error.code() is not grpc.StatusCode.NOT_FOUND:
            raise
        return False


def test_a_poll_that_is_cancelled_leaves_nothing_leased(client: Client) -> None:
    pb = client.messages
    of = {"topic": "cancelled", "group": "cancelled"}
    client.administration.CreateTopic(pb.CreateTopicRequest(name="cancelled", partitions=1))
    waiting = client.queues.Poll.future(pb.PollRequest(**of, wait_ms=30_000))
    wait_until("the queue is there", lambda: has_queue(client, of))
    waiting.cancel()
    client.streams.Publish(pb.PublishRequest(topic="cancelled", records=[pb.NewRecord(value=b"v")]))
    polled = client.queues.Poll(pb.PollRequest(**of, wait_ms=20_000))
    assert [(each.record.value, each.attempt) for each in polled.messages] == [(b"v", 1)]


# Health and reflection


def test_health_follows_the_node_and_reflection_lists_the_services(
    client: Client, generated: Generated
) -> None:
    health = health_pb2_grpc.HealthStub(client.plain_channel)
    services = generated.messages.DESCRIPTOR.services_by_name.values()
    names = {service.full_name for service in services}
    for name in ("", *names):
        answer = health.Check(health_pb2.HealthCheckRequest(service=name))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    error = refusal(health.Check, health_pb2.HealthCheckRequest(service="none"))
    assert error.code() is grpc.StatusCode.NOT_FOUND
    watching = health.Watch(health_pb2.HealthCheckRequest())
    assert next(watching).status == health_pb2.HealthCheckResponse.SERVING
    watching.cancel()
    described = ProtoReflectionDescriptorDatabase(client.plain_channel)
    assert names <= set(described.get_services())
    assert described.FindFileContainingSymbol("penstock.v1.Streams").name == "penstock_v1.proto"


# A leader's death


class Publisher(threading.Thread):
    """Publishes on one stream through one node until it is stopped. With keys it goes on by another
    node when its own is lost, and repeats what was not answered."""

    def __init__(self, generated: Generated, addresses: list[str], *, is_keyed: bool) -> None:
        super().__init__()
        self.generated = generated
        self.addresses = addresses
        self.is_keyed = is_keyed
        self.label = f"{addresses[0]}-{is_keyed}"
        self.acknowledged: list[str] = []
        self.stopping = threading.Event()
        self.reconnects = 0

    def run(self) -> None:
        for address in itertools.cycle(self.addresses):
            with Client(self.generated, address) as client:
                try:
                    self._publish(client)
                except grpc.RpcError:
                    assert self.is_keyed, "a node that lives keeps its streams"
                    self.reconnects += 1
                else:
                    return

    def _publish(self, client: Client) -> None:
        pb = client.messages
        talk = Talk(client.streams.PublishStream)
        # Five requests are under way.
        under_way: queue.SimpleQueue[str] = queue.SimpleQueue()
        numbers = itertools.count(len(self.acknowledged))
        while not self.stopping.is_set() or not under_way.empty():
            while under_way.qsize() < 5 and not self.stopping.is_set():
                value = f"{self.label}-{next(numbers)}"
                talk.say(
                    pb.PublishRequest(
                        topic="durable",
                        records=[pb.NewRecord(key=value.encode(), value=value.encode())],
                        idempotency_key=value if self.is_keyed else "",
                    )
                )
                under_way.put(value)
            talk.hear("written")
            self.acknowledged.append(under_way.get())
        talk.end()


def all_values(client: Client, topic: str, partitions: int) -> Counter[str]:
    pb = client.messages
    found: Counter[str] = Counter()
    for partition in range(partitions):
        offset = 0
        while True:
            page = client.streams.Fetch(
                pb.FetchRequest(
                    topic=topic,
                    partition=partition,
                    start=pb.Start(offset=offset),
                    records_max=10_000,
                )
            )
            found.update(record.value.decode() for record in page.records)
            offset = page.next_offset
            if offset >= page.high_watermark:
                break
    return found


def test_nothing_is_lost_or_doubled_when_a_leader_dies_under_streams(
    cluster: ProcessCluster, generated: Generated
) -> None:
    cluster.create_topic("durable", partitions=3, replication_factor=3)
    cluster.await_in_sync()
    victim = cluster.leader("durable").number
    others = [cluster.nodes[node].grpc for node in cluster.nodes if node != victim]
    running = [Publisher(generated, others, is_keyed=False)]
    # One that loses its own node.
    running.append(Publisher(generated, [cluster.nodes[victim].grpc, *others], is_keyed=True))
    for publisher in running:
        publisher.start()

    def await_progress() -> None:
        wanted = [len(publisher.acknowledged) + 30 for publisher in running]
        wait_until(
            "all publish",
            lambda: all(
                len(publisher.acknowledged) > count
                for publisher, count in zip(running, wanted, strict=True)
            ),
        )

    await_progress()
    cluster.nodes[victim].kill()
    await_progress()
    cluster.nodes[victim].start()
    for publisher in running:
        publisher.stopping.set()
    for publisher in running:
        publisher.join(WAIT_S)
        assert not publisher.is_alive()
    assert running[1].reconnects
    with Client(generated, others[0]) as client:
        found = all_values(client, "durable", 3)
    assert not {value for value, times in found.items() if times > 1}
    for publisher in running:
        assert set(publisher.acknowledged) <= set(found)
