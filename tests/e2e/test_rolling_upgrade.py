"""Proves that a cluster is upgraded node by node while clients work, and they notice latency only.

The version that is upgraded from is the commit that the file `previous_version` names: the one that
was landed before. What is landed next must keep this green.
"""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import psutil
import pytest

from penstock.client.queues import Queues
from tests.documents import ROOT
from tests.e2e.cluster_history import History, Member, under_load
from tests.e2e.cluster_nodes import Cluster, ClusterNode
from tests.e2e.cluster_scenarios import PARTITIONS, TOPIC, judge
from tests.e2e.processes import command
from tests.e2e.queue_members import ConfluentShare, Place, QueueLedger, produce
from tests.e2e.queue_session import configure_group
from tests.waiting import wait_until

# One after the other: two clusters at once on two cores would measure each other.
pytestmark = [pytest.mark.xdist_group("cluster"), pytest.mark.timeout(400)]

COMMIT_FILE = Path(__file__).with_name("previous_version")
PATH = "PYTHONPATH"
HTTP_S = 60.0
JOBS, WORKERS = "jobs", "workers"
JOBS_AT_A_TIME = 90
PAGES = "pages"


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources of the previous version, to be found before those of this one."""
    commit = COMMIT_FILE.read_text().strip()
    packed = subprocess.run(
        ["git", "-C", str(ROOT), "archive", "--format=tar", commit, "src"], capture_output=True
    )
    if packed.returncode:
        pytest.skip(
            f"commit {commit}, the previous version, is not in this clone: fetch the whole "
            f"history with git fetch --unshallow ({packed.stderr.decode().strip()})"
        )
    folder = tmp_path_factory.mktemp("previous")
    subprocess.run(["tar", "-x", "-C", str(folder)], input=packed.stdout, check=True)
    return folder / "src"


def home(environment: dict[str, str]) -> Path:
    """Where a program of this environment has the package from."""
    python = command()[0]
    said = subprocess.run(
        [python, "-c", "import penstock; print(penstock.__file__)"],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    return Path(said.stdout.strip())


def is_previous(node: ClusterNode, previous: Path) -> bool:
    environment = psutil.Process(node.pid).environ()
    return home(environment).is_relative_to(previous)


def replace(node: ClusterNode) -> None:
    """As the how-to page says: stop, start the new version, wait until it is in sync."""
    assert node.terminate() == 0
    node.environment.pop(PATH, None)
    node.start()
    in_sync = f"http://{node.http}/health/in-sync"
    wait_until("it is in sync", lambda: httpx.get(in_sync, timeout=HTTP_S).status_code == 200)


class Queue:
    """Workers on a queue; every job is accepted in the end, and by one of them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.ledger = QueueLedger()
        configure_group(cluster.nodes[1].bootstrap, WORKERS, share_auto_offset_reset="earliest")
        self._members = [
            ConfluentShare(name, cluster.bootstrap, JOBS, WORKERS, self.ledger)
            for name in ("one", "other")
        ]
        for member in self._members:
            member.start()

    def add_jobs(self) -> set[Place]:
        given = ["job"] * JOBS_AT_A_TIME
        return produce(self._cluster.bootstrap, JOBS, given, PARTITIONS)

    def await_end(self, jobs: set[Place]) -> None:
        """Each job is done, and a worker was told so: a node that stops answers first."""
        self.ledger.wait_until("end of all jobs", lambda: self.ledger.ended >= jobs)
        queues = Queues(self._cluster.bootstrap, timeout_s=HTTP_S)
        wait_until("the queue is empty", lambda: queues.describe(WORKERS).lag == 0)

    def close(self) -> None:
        for member in self._members:
            member.stop()


def use_every_node(cluster: Cluster, stage: int) -> None:
    """Old and new nodes ask each other: any of them answers for all."""
    for node in cluster.nodes.values():
        with httpx.Client(base_url=f"http://{node.http}", timeout=HTTP_S) as client:
            records = [{"partition": each, "value": stage} for each in range(PARTITIONS)]
            written = client.post(f"/v1/topics/{PAGES}/records", json={"records": records})
            assert written.status_code == 200, written.text
            offsets = {"offsets": [{"topic": PAGES, "partition": 0, "offset": stage}]}
            stored = client.put(f"/v1/groups/by-{node.number}/offsets", json=offsets)
            assert stored.status_code == 204, stored.text
    for node in cluster.nodes.values():
        with httpx.Client(base_url=f"http://{node.http}", timeout=HTTP_S) as client:
            for other in cluster.nodes:
                found = client.get(f"/v1/groups/by-{other}/offsets").json()["offsets"]
                assert [each["offset"] for each in found] == [stage]


@pytest.fixture
def cluster(tmp_path: Path, previous: Path) -> Iterator[Cluster]:
    """Three nodes of the previous version."""
    with Cluster(tmp_path, environment={PATH: str(previous)}) as running:
        for topic in (TOPIC, JOBS, PAGES):
            running.create_topic(topic, partitions=PARTITIONS)
        yield running


@pytest.mark.slow
def test_a_rolling_upgrade_is_seen_only_as_latency(
    cluster: Cluster, previous: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is lost, doubled or out of order in the log, for writers, members of groups of both
    protocols, workers of a queue and HTTP, while versions are mixed and after that."""
    with ExitStack() as ending:
        history: History = ending.enter_context(under_load(cluster.bootstrap, TOPIC))
        modern = Member(cluster.bootstrap, TOPIC, "modern", is_modern=True)
        ending.callback(modern.stop)
        queue = Queue(cluster)
        ending.callback(queue.close)
        # The first one twice: at last a node of this version stops under load.
        for stage, node in enumerate([*cluster.nodes.values(), cluster.nodes[1]]):
            assert is_previous(node, previous) is (stage < len(cluster.nodes))
            jobs = queue.add_jobs()
            replace(node)
            assert not is_previous(node, previous)
            queue.ledger.nobody_holds()
            history.wait_for_progress()
            read = len(modern.read)
            wait_until("the modern group reads on", lambda read=read: len(modern.read) > read)  # type: ignore[misc]
            queue.await_end(jobs)
            use_every_node(cluster, stage)
        # An answer with leases may be lost with the connection: that attempt was nobody's.
        queue.ledger.check(kills=len(cluster.nodes))
        acknowledged = set(history.places)
        wait_until("the modern group has read it all", lambda: acknowledged <= set(modern.read))
        modern.stop()
        modern.join()
        assert modern.failures == []
        told = judge(cluster, history)
        again = sum(len(attempts) - 1 for attempts in queue.ledger.attempts.values())
        with capsys.disabled():
            print(f"\nrolling upgrade: {told}; {again} jobs were handed out again")
