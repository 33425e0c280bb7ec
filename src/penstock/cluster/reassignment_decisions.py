"""Decides where partitions move: by request, and internal topics as brokers join.

A move is one change of an assignment: `replicas` is where the partition goes, `previous` where it
came from. The partition's leader brings its group there step by step, and then ends the move.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from penstock.cluster.placement import Placement
from penstock.cluster.records import ClusterRecord, TopicStored
from penstock.cluster.state import ClusterState
from penstock.cluster.topic import Assignment, Topic
from penstock.cluster.topic_decisions import check_assignments
from penstock.model.errors import Reason, Refused
from penstock.model.ids import BrokerId, PartitionId, TopicId


class Move(NamedTuple):
    """A partition that shall lie on these brokers, or back where it came from."""

    topic: str
    partition: int
    replicas: Sequence[int] | None
    can_change_factor: bool = True


def decide_move(state: ClusterState, move: Move) -> tuple[list[ClusterRecord], None]:
    topic = state.topic(move.topic)
    if topic is None or not 0 <= move.partition < topic.partitions:
        detail = f"There is no partition {move.partition} of a topic '{move.topic}'."
        raise Refused(Reason.UNKNOWN_TOPIC_OR_PARTITION, detail)
    now = topic.assignments[move.partition]
    moved = _cancelled(now) if move.replicas is None else _moved(state, now, move)
    if moved == now:
        return [], None
    return [_stored(topic, {move.partition: moved})], None


def _cancelled(now: Assignment) -> Assignment:
    if now.previous is None:
        detail = "No reassignment of this partition is in progress."
        raise Refused(Reason.NO_REASSIGNMENT_IN_PROGRESS, detail)
    # Still moving: those that it was on its way to may belong to its group already.
    return now._replace(replicas=now.previous)


def _moved(state: ClusterState, now: Assignment, move: Move) -> Assignment:
    assert move.replicas is not None
    check_assignments([move.replicas], state.brokers, factor=None)
    replicas = tuple(BrokerId(node) for node in move.replicas)
    before = now.replicas if now.previous is None else now.previous
    if not move.can_change_factor and len(replicas) != len(before):
        detail = f"The partition has {len(before)} replica(s), not {len(replicas)}."
        raise Refused(Reason.INVALID_REPLICATION_FACTOR, detail)
    if now.previous is None and set(replicas) == set(now.replicas):
        return now._replace(replicas=replicas)
    return Assignment(replicas, now.founders, before)


class Ended(NamedTuple):
    """A move whose group has reached its target."""

    key: PartitionId
    assignment: Assignment


def decide_ends(state: ClusterState, ended: Iterable[Ended]) -> tuple[list[ClusterRecord], None]:
    """What was assigned again meanwhile keeps moving."""
    changes: dict[TopicId, tuple[Topic, dict[int, Assignment]]] = {}
    for key, assignment in ended:
        topic = state.topics.get(key.topic_id)
        if topic is None or key.partition >= topic.partitions:
            continue
        if topic.assignments[key.partition] == assignment and assignment.previous is not None:
            _, of_topic = changes.setdefault(topic.topic_id, (topic, {}))
            of_topic[key.partition] = assignment._replace(previous=None)
    return [_stored(topic, of_topic) for topic, of_topic in changes.values()], None


def decide_internal_growth(
    state: ClusterState, factors: Mapping[str, int], alive: Collection[BrokerId]
) -> tuple[list[ClusterRecord], None]:
    """Internal topics get more replicas as brokers join, up to their factor."""
    usable = state.usable_brokers()
    living = [broker for broker in usable if broker.id in alive]
    placement = Placement(
        living,
        alive=alive,
        replica_counts=state.replica_counts,
        preferred_counts=state.preferred_counts,
    )
    records: list[ClusterRecord] = []
    for topic in state.topics.values():
        if not topic.internal:
            continue
        target = min(factors[topic.name], len(usable))
        grown = {
            index: Assignment(placement.extend(now.replicas, target), now.founders, now.replicas)
            for index, now in enumerate(topic.assignments)
            if now.previous is None
            and len(now.replicas) < target
            and target <= len({*now.replicas, *(broker.id for broker in living)})
        }
        if grown:
            records.append(_stored(topic, grown))
    return records, None


def _stored(topic: Topic, changed: dict[int, Assignment]) -> TopicStored:
    assignments = tuple(
        changed.get(index, assignment) for index, assignment in enumerate(topic.assignments)
    )
    return TopicStored(topic=replace(topic, assignments=assignments))
