"""Who may register, replace a lost disk, and be removed."""

import pytest

from penstock.cluster.broker_decisions import decide_registration, decide_removal
from penstock.cluster.brokers import DRAINED
from penstock.cluster.records import BrokerConfigStored, BrokerRemoved, BrokerStored
from penstock.cluster.state import ClusterState
from penstock.model.errors import Reason, Refused
from penstock.model.ids import BrokerId, DirectoryId
from tests.unit.cluster.fakes import broker
from tests.unit.cluster.test_topic_decisions import with_brokers, with_topics


def removal(state: ClusterState, number: int, *alive: int) -> Reason | list[object]:
    try:
        records, _ = decide_removal(state, BrokerId(number), [BrokerId(n) for n in alive])
    except Refused as refused:
        return refused.reason
    return list(records)


def test_registering_again_changes_nothing() -> None:
    state = with_brokers()
    assert decide_registration(state, broker(0), DirectoryId("dir0")) == ([], None)
    moved = broker(0, rack="r1")
    assert decide_registration(state, moved, None)[0] == [BrokerStored(broker=moved)]


def test_an_empty_disk_replaces_the_old_one_only_if_that_is_gone() -> None:
    state, fresh = with_brokers(), broker(0, directory="fresh")
    with pytest.raises(Refused, match="is running with the data directory dir0"):
        decide_registration(state, fresh, DirectoryId("dir0"))
    stored = [BrokerStored(broker=fresh)]
    assert decide_registration(state, fresh, None)[0] == stored
    assert decide_registration(state, fresh, DirectoryId("fresh"))[0] == stored


def test_a_broker_is_removed_when_it_holds_nothing() -> None:
    state = with_topics("t", brokers=4)
    assert removal(state, 0, 0) == Reason.INVALID_REQUEST, "it holds replicas"
    assert removal(state, 3, 3) == Reason.INVALID_REQUEST, "it is running"
    assert removal(state, 7) == Reason.BROKER_ID_NOT_REGISTERED
    assert removal(state, 3) == [BrokerRemoved(broker=BrokerId(3))]


def test_a_drained_broker_may_still_run() -> None:
    state = with_brokers(2)
    state.apply(BrokerConfigStored(broker="1", configs={DRAINED: "true"}))
    records = removal(state, 1, 1)
    assert records == [
        BrokerRemoved(broker=BrokerId(1)),
        BrokerConfigStored(broker="1", configs={}),
    ]
    for record in records:
        state.apply(record)  # type: ignore[arg-type]
    assert removal(state, 1) == [], "asked again, it is done"
