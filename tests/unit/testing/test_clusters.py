"""Waiting for a cluster goes on while its nodes are too busy to answer, and ends with a reason."""

from pathlib import Path

import pytest

from penstock.client.errors import BrokerUnreachable, ClientError
from penstock.testing import clusters
from penstock.testing.clusters import ProcessCluster
from tests.unit.client.fake_cluster import FakeCluster


class Busy:
    """Nobody answers this many times, and then a cluster does."""

    def __init__(self, fake: FakeCluster, silences: int) -> None:
        self.silences = silences
        self._fake = fake

    def connect(self, bootstrap: str, *, timeout_s: float) -> FakeCluster:
        if self.silences == 0:
            return self._fake
        self.silences -= 1
        raise BrokerUnreachable("No broker answers.")


@pytest.fixture
def fake() -> FakeCluster:
    made = FakeCluster()
    made.add("orders", 0, 1, 2, 3)
    return made


def test_nodes_that_do_not_answer_yet_are_asked_again(
    fake: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = Busy(fake, silences=3)
    monkeypatch.setattr(clusters, "KafkaConnection", busy.connect)
    monkeypatch.setattr(clusters, "POLL_S", 0.0)
    ProcessCluster(tmp_path).await_in_sync()
    assert busy.silences == 0


@pytest.mark.parametrize(("silences", "reason"), [(0, "orders-0"), (10**9, "no node answers")])
def test_what_never_comes_is_told(
    silences: int,
    reason: str,
    fake: FakeCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake.down = {3}
    monkeypatch.setattr(clusters, "KafkaConnection", Busy(fake, silences).connect)
    with pytest.raises(ClientError, match=f"Not in sync after 0.05 s: {reason}"):
        ProcessCluster(tmp_path).await_in_sync(0.05)
