"""Decides what happens to topics: each function reads the state and says which records to append.

Nothing here changes the state. A refusal of one topic is a value, so that the other topics of the
same request go on.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from penstock.cluster.config_definitions import check_topic_configs
from penstock.cluster.records import (
    ClusterRecord,
    FilesDoomed,
    FilesRemoved,
    TopicRemoved,
    TopicStored,
)
from penstock.cluster.state import ClusterState
from penstock.cluster.topic import Topic
from penstock.cluster.topic_names import (
    CLUSTER_METADATA,
    check_topic_name,
    collision_key,
    is_internal,
)
from penstock.model.errors import Reason, Refused
from penstock.model.ids import BrokerId, TopicId, TopicName
from penstock.model.limits import PARTITIONS_PER_NODE_MAX, PARTITIONS_PER_TOPIC_MAX

# "Take the default", for a count of partitions or of replicas.
UNSET = -1

Assignment: TypeAlias = Sequence[int]
Outcome: TypeAlias = Topic | Refused


class NewTopic(NamedTuple):
    """A topic that someone asks for."""

    name: str
    configs: Mapping[str, str | None]
    partitions: int = UNSET
    replication_factor: int = UNSET
    # The brokers of each partition, by its index, when the asker chose them; pairs, since a bad
    # request may name a partition twice.
    assignments: Sequence[tuple[int, Assignment]] = ()
    # The broker itself asks, for a topic of its own.
    internal: bool = False


class Growth(NamedTuple):
    """A topic that shall have so many partitions in total."""

    name: str
    partitions: int
    # The brokers of each new partition, in order, when the asker chose them.
    assignments: Sequence[Assignment] | None = None


class Rules(NamedTuple):
    """What decisions need to know beside the metadata."""

    brokers: Collection[BrokerId]
    partitions_default: int
    replication_factor_default: int
    # The brokers' effective settings, which give topics their defaults.
    broker_settings: Mapping[str, str]
    new_topic_id: Callable[[], TopicId]


# Creating


def decide_creation(
    state: ClusterState,
    wanted: Sequence[NewTopic],
    rules: Rules,
    abandoned: Collection[TopicId] = (),
) -> tuple[list[ClusterRecord], dict[str, Outcome]]:
    """One outcome per distinct name, in the order of the request.

    `abandoned` are topics whose creation failed and could not be taken back: they make room.
    """
    times = Counter(new.name for new in wanted)
    taken = _Taken(state, abandoned)
    outcomes: dict[str, Outcome] = {}
    for new in wanted:
        if times[new.name] > 1:
            outcomes[new.name] = Refused(Reason.INVALID_REQUEST, "Duplicate topic name.")
            continue
        try:
            outcomes[new.name] = taken.add(_new_topic(new, rules, taken))
        except Refused as refused:
            outcomes[new.name] = refused
    made = [outcome for outcome in outcomes.values() if isinstance(outcome, Topic)]
    removed = _removals(topic_id for topic_id in abandoned if topic_id in state.topics)
    return [*removed, *(TopicStored(topic=topic) for topic in made)], outcomes


class _Taken:
    """The names and the partitions that are in use, counting those of the request so far."""

    def __init__(self, state: ClusterState, abandoned: Collection[TopicId]) -> None:
        self._state = state
        self._abandoned = frozenset(abandoned)
        self._added: dict[str, TopicName] = {}
        gone = (state.topics[topic_id] for topic_id in abandoned if topic_id in state.topics)
        self.partition_count = state.partition_count - sum(topic.partitions for topic in gone)

    def check_name(self, name: TopicName) -> None:
        existing = self._state.colliding_name(name)
        if existing is not None and self._id_of(existing) in self._abandoned:
            existing = None
        existing = existing or self._added.get(collision_key(name))
        if existing == name:
            raise Refused(Reason.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        if existing is not None:
            detail = f"Topic '{name}' collides with existing topic: {existing}"
            raise Refused(Reason.INVALID_TOPIC, detail)

    def add(self, topic: Topic) -> Topic:
        self._added[collision_key(topic.name)] = topic.name
        self.partition_count += topic.partitions
        return topic

    def _id_of(self, name: TopicName) -> TopicId | None:
        topic = self._state.topic(name)
        return None if topic is None else topic.topic_id


def _new_topic(new: NewTopic, rules: Rules, taken: _Taken) -> Topic:
    if new.name == CLUSTER_METADATA or is_internal(new.name) != new.internal:
        detail = f"Creation of internal topic {new.name} is prohibited."
        raise Refused(Reason.INVALID_REQUEST, detail)
    name = check_topic_name(new.name)
    taken.check_name(name)
    configs = check_topic_configs(new.configs, rules.broker_settings)
    partitions = _partitions_of(new, rules)
    _check_limits(partitions, partitions, taken.partition_count)
    return Topic(
        name=name,
        topic_id=rules.new_topic_id(),
        partitions=partitions,
        ready=0,
        configs=configs,
        internal=new.internal,
    )


def _partitions_of(new: NewTopic, rules: Rules) -> int:
    if new.assignments:
        return _partitions_assigned(new, rules)
    if new.replication_factor < UNSET or new.replication_factor == 0:
        detail = "Replication factor must be larger than 0, or -1 to use the default value."
        raise Refused(Reason.INVALID_REPLICATION_FACTOR, detail)
    if new.partitions < UNSET or new.partitions == 0:
        detail = "Number of partitions must be larger than 0, or -1 to use the default value."
        raise Refused(Reason.INVALID_PARTITIONS, detail)
    factor = new.replication_factor
    if factor == UNSET:
        factor = rules.replication_factor_default
    if factor > len(rules.brokers):
        detail = (
            f"Unable to replicate the partition {factor} time(s): "
            f"this cluster has {len(rules.brokers)} broker(s)."
        )
        raise Refused(Reason.INVALID_REPLICATION_FACTOR, detail)
    return rules.partitions_default if new.partitions == UNSET else new.partitions


def _partitions_assigned(new: NewTopic, rules: Rules) -> int:
    for what, value in (
        ("replication factor", new.replication_factor),
        ("the number of partitions", new.partitions),
    ):
        if value != UNSET:
            detail = f"A manual partition assignment was given, but {what} was not set to -1."
            raise Refused(Reason.INVALID_REQUEST, detail)
    indexes = [index for index, _ in new.assignments]
    if len(set(indexes)) != len(indexes):
        detail = "A partition has more than one manual assignment."
        raise Refused(Reason.INVALID_REPLICA_ASSIGNMENT, detail)
    if sorted(indexes) != list(range(len(indexes))):
        detail = "Partitions must be numbered from 0 without gaps."
        raise Refused(Reason.INVALID_REPLICA_ASSIGNMENT, detail)
    _check_assignments([brokers for _, brokers in new.assignments], rules, factor=None)
    return len(indexes)


def _check_assignments(
    assignments: Iterable[Assignment], rules: Rules, *, factor: int | None
) -> None:
    """Each names known brokers, none twice, and all have the same number of them."""
    for brokers in assignments:
        fault = _fault_of_assignment(brokers, rules, factor)
        if fault is not None:
            detail = f"The manual partition assignment {fault}."
            raise Refused(Reason.INVALID_REPLICA_ASSIGNMENT, detail)
        factor = len(brokers)


def _fault_of_assignment(brokers: Assignment, rules: Rules, factor: int | None) -> str | None:
    if not brokers:
        return "has an empty list of replicas"
    if len(set(brokers)) != len(brokers):
        return f"names a broker more than once: {list(brokers)}"
    unknown = [broker for broker in brokers if broker not in rules.brokers]
    if unknown:
        return f"names broker {unknown[0]}, which this cluster does not have"
    if factor is not None and len(brokers) != factor:
        return f"has a partition with {len(brokers)} replica(s) where others have {factor}"
    return None


def _check_limits(partitions: int, added: int, in_use: int) -> None:
    if partitions > PARTITIONS_PER_TOPIC_MAX:
        detail = f"A topic can have {PARTITIONS_PER_TOPIC_MAX} partitions, not {partitions}."
        raise Refused(Reason.INVALID_PARTITIONS, detail)
    if in_use + added > PARTITIONS_PER_NODE_MAX:
        detail = (
            f"A broker can have {PARTITIONS_PER_NODE_MAX} partitions: "
            f"{in_use} are in use and {added} more are asked for."
        )
        raise Refused(Reason.INVALID_PARTITIONS, detail)


# Growing


def decide_growth(
    state: ClusterState, wanted: Sequence[Growth], rules: Rules
) -> tuple[list[ClusterRecord], dict[str, Outcome]]:
    """An outcome's topic has its old `ready` and its new `partitions`."""
    times = Counter(growth.name for growth in wanted)
    outcomes: dict[str, Outcome] = {}
    in_use = state.partition_count
    for growth in wanted:
        try:
            if times[growth.name] > 1:
                raise Refused(Reason.INVALID_REQUEST, "Duplicate topic name.")
            grown = _grown(state, growth, rules, in_use)
            in_use += grown.partitions - grown.ready
            outcomes[growth.name] = grown
        except Refused as refused:
            outcomes[growth.name] = refused
    grown_topics = [outcome for outcome in outcomes.values() if isinstance(outcome, Topic)]
    return [TopicStored(topic=topic) for topic in grown_topics], outcomes


def _grown(state: ClusterState, growth: Growth, rules: Rules, in_use: int) -> Topic:
    topic = _served(state, growth.name)
    if topic.internal:
        # A group's partition follows from their number: more of them would orphan its offsets.
        detail = f"Topic '{topic.name}' is internal: its number of partitions is fixed."
        raise Refused(Reason.INVALID_REQUEST, detail)
    # Partitions beyond `ready` are leftovers of a growth that failed, and are asked for anew.
    if growth.partitions == topic.ready:
        detail = f"Topic already has {topic.ready} partition(s)."
        raise Refused(Reason.INVALID_PARTITIONS, detail)
    if growth.partitions < topic.ready:
        detail = (
            f"The topic {topic.name} has {topic.ready} partition(s); "
            f"{growth.partitions} would not be an increase."
        )
        raise Refused(Reason.INVALID_PARTITIONS, detail)
    added = growth.partitions - topic.ready
    _check_limits(growth.partitions, added, in_use)
    if growth.assignments is not None:
        if len(growth.assignments) != added:
            detail = (
                f"{added} partition(s) are to be added, "
                f"but {len(growth.assignments)} assignment(s) were given."
            )
            raise Refused(Reason.INVALID_REPLICA_ASSIGNMENT, detail)
        _check_assignments(growth.assignments, rules, factor=1)
    return replace(topic, partitions=growth.partitions)


def decide_ready(state: ClusterState, topics: Iterable[Topic]) -> tuple[list[ClusterRecord], None]:
    """Marks all partitions of these topics as made; one that was deleted meanwhile stays so."""
    records: list[ClusterRecord] = []
    for topic in topics:
        now = state.topics.get(topic.topic_id)
        if now is not None:
            # Settings may have changed since: only what this step is about is written.
            made = replace(now, partitions=topic.partitions, ready=topic.partitions)
            records.append(TopicStored(topic=made))
    return records, None


def decide_withdrawal(
    state: ClusterState, topics: Iterable[Topic]
) -> tuple[list[ClusterRecord], None]:
    """Takes back what was not finished: a new topic goes, a grown one is as large as before."""
    records: list[ClusterRecord] = []
    for topic in topics:
        now = state.topics.get(topic.topic_id)
        if now is None or now.is_finished:
            continue
        if now.ready == 0:
            records.extend(_removals([now.topic_id]))
        else:
            records.append(TopicStored(topic=replace(now, partitions=now.ready)))
    return records, None


# Deleting


def decide_deletion(
    state: ClusterState, chosen: Sequence[TopicName | TopicId]
) -> tuple[list[ClusterRecord], list[Outcome]]:
    """One outcome per choice, in order; a choice is a name or an id, and none may come twice."""
    outcomes: list[Outcome] = []
    # Keyed by id, in the order of the request.
    doomed: dict[TopicId, None] = {}
    for choice in chosen:
        try:
            topic = _deletable(state, choice)
            if topic.topic_id in doomed:
                detail = f"Topic '{topic.name}' was chosen by its name and by its id."
                raise Refused(Reason.INVALID_REQUEST, detail)
            doomed[topic.topic_id] = None
            outcomes.append(topic)
        except Refused as refused:
            outcomes.append(refused)
    return _removals(doomed), outcomes


def decide_files_removed(
    state: ClusterState, topic_id: TopicId
) -> tuple[list[ClusterRecord], None]:
    return ([FilesRemoved(topic_id=topic_id)] if topic_id in state.doomed else []), None


def _removals(topic_ids: Iterable[TopicId]) -> list[ClusterRecord]:
    records: list[ClusterRecord] = []
    for topic_id in topic_ids:
        records += [TopicRemoved(topic_id=topic_id), FilesDoomed(topic_id=topic_id)]
    return records


def _deletable(state: ClusterState, choice: TopicName | TopicId) -> Topic:
    topic = _served(state, choice) if isinstance(choice, str) else _served_by_id(state, choice)
    if topic.internal:
        detail = f"Topic '{topic.name}' is internal and can't be deleted."
        raise Refused(Reason.INVALID_REQUEST, detail)
    return topic


def _served(state: ClusterState, name: str) -> Topic:
    topic = state.topic(name)
    # Not yet made means not yet answered: to everyone but its maker it does not exist.
    if topic is None or topic.ready == 0:
        raise Refused(Reason.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{name}'.")
    return topic


def _served_by_id(state: ClusterState, topic_id: TopicId) -> Topic:
    topic = state.topics.get(topic_id)
    if topic is None or topic.ready == 0:
        raise Refused(Reason.UNKNOWN_TOPIC_ID, f"There is no topic with id {topic_id}.")
    return topic
