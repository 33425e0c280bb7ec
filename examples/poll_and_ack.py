"""Workers poll and ack over gRPC, while nodes that hold the messages' copies die.

Three nodes keep every message on all three. Producers send jobs, workers poll them, work and ack.
One worker dies with jobs in its hands: nobody acked them, so others get them at a later attempt.
Then a node dies: the copies on the other two go on, and no job is lost.

The client is made from the .proto alone, as in any language. It needs `pip install grpcio-tools`.

    python examples/poll_and_ack.py --jobs 200
"""

import argparse
import sys
import tempfile
import threading
import time
from importlib.resources import files
from pathlib import Path

import grpc

from penstock.testing import ProcessCluster

sys.path.append(str(files("penstock.frontdoor.grpc")))
pb, rpc = grpc.protos_and_services("penstock_v1.proto")

TOPIC, GROUP = "jobs", "workers"
CALL_S = 5.0


class Anyone:
    """Calls one node after the other until one answers: each answers for all of them."""

    def __init__(self, addresses: list[str]) -> None:
        self.channels = [grpc.insecure_channel(address) for address in addresses]

    def call(self, stub: type, method: str, request: object) -> object:
        while True:
            try:
                return getattr(stub(self.channels[0]), method)(request, timeout=CALL_S)
            except grpc.RpcError as error:
                if error.code() not in (
                    grpc.StatusCode.UNAVAILABLE,
                    grpc.StatusCode.DEADLINE_EXCEEDED,
                ):
                    raise
                self.channels.append(self.channels.pop(0))
                time.sleep(0.1)


def produce(anyone: Anyone, count: int) -> None:
    for number in range(count):
        record = pb.NewRecord(value=b"%d" % number)
        # The key makes it safe to send again when nobody answered.
        request = pb.PublishRequest(topic=TOPIC, records=[record], idempotency_key=f"job-{number}")
        anyone.call(rpc.StreamsStub, "Publish", request)


def poll(anyone: Anyone, count: int) -> list:
    request = pb.PollRequest(
        topic=TOPIC, group=GROUP, records_max=count, wait_ms=1_000, lease_ms=2_000
    )
    return list(anyone.call(rpc.QueuesStub, "Poll", request).messages)


def work(anyone: Anyone, done: dict[int, int], count: int) -> None:
    while len(done) < count:
        messages = poll(anyone, 10)
        for message in messages:
            done[int(message.record.value)] = message.attempt
        if messages:
            tokens = [message.token for message in messages]
            request = pb.AckRequest(topic=TOPIC, group=GROUP, tokens=tokens)
            anyone.call(rpc.QueuesStub, "Ack", request)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--jobs", type=int, default=300)
    count = parser.parse_args().jobs
    with tempfile.TemporaryDirectory() as folder, ProcessCluster(Path(folder)) as cluster:
        cluster.create_topic(TOPIC, partitions=3)
        run(cluster, count)


def run(cluster: ProcessCluster, count: int) -> None:
    addresses = [node.grpc for node in cluster.nodes.values()]
    produce(Anyone(addresses), 10)
    held: list[int] = []
    while not held:
        held = [int(message.record.value) for message in poll(Anyone(addresses), 5)]
    print(f"a worker dies with {len(held)} jobs in its hands")

    done: dict[int, int] = {}
    threads = [threading.Thread(target=produce, args=(Anyone(addresses), count))] + [
        threading.Thread(target=work, args=(Anyone(addresses), done, count)) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    while len(done) < count // 3:
        time.sleep(0.05)
    leader = cluster.leader(TOPIC)
    print(f"node {leader.number} is killed after {len(done)} jobs; two copies of each are left")
    leader.kill()
    for thread in threads:
        thread.join()
    assert done.keys() == set(range(count))
    assert all(done[number] > 1 for number in held), "jobs of the dead worker were tried again"
    print(f"all {count} jobs are done; those of the dead worker at attempt 2 or later")


if __name__ == "__main__":
    main()
