"""Decides what happens to topics: each function reads the state and says which records to append.

Nothing here changes the state. A refusal of one topic is a value, so that the other topics of the
same request go on.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from penstock.cluster.config_definitions import check_topic_configs
from penstock.cluster.placement import Placement, candidates
from penstock.cluster.records import ClusterRecord, TopicRemoved, TopicStored
from penstock.cluster.state import ClusterState
from penstock.cluster.topic import Assignment, Topic
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

Brokers: TypeAlias = Sequence[int]
Outcome: TypeAlias = Topic | Refused


class NewTopic(NamedTuple):
    """A topic that someone asks for."""

    name: str
    configs: Mapping[str, str | None]
    partitions: int = UNSET
    replication_factor: int = UNSET
    # The brokers of each partition, by its index, when the asker chose them; pairs, since a bad
    # request may name a partition twice.
    assignments: Sequence[tuple[int, Brokers]] = ()
    # The broker itself asks, for a topic of its own.
    internal: bool = False


class Growth(NamedTuple):
    """A topic that shall have this many partitions in total."""

    name: str
    partitions: int
    # The brokers of each new partition, in order, when the asker chose them.
    assignments: Sequence[Brokers] | None = None


class Grown(NamedTuple):
    """A topic as it is to be, and the first of its new partitions."""

    topic: Topic
    first: int


class Rules(NamedTuple):
    """What decisions need to know beside the metadata."""

    partitions_default: int
    # These act as far as there are brokers. Internal topics have their own, by name.
    replication_factor_default: int
    internal_factors: Mapping[str, int]
    # The brokers' effective settings, which give topics their defaults.
    broker_settings: Mapping[str, str]
    alive: Collection[BrokerId]
    new_topic_id: Callable[[], TopicId]


# Creating


def decide_creation(
    state: ClusterState,
    wanted: Sequence[NewTopic],
    rules: Rules,
    *,
    abandoned: Collection[TopicId] = (),
) -> tuple[list[ClusterRecord], dict[str, Outcome]]:
    """One outcome per distinct name, in the order of the request.

    `abandoned` are topics whose creation failed and could not be taken back: they make room.
    """
    times = Counter(new.name for new in wanted)
    taken = _Taken(state, rules, abandoned)
    outcomes: dict[str, Outcome] = {}
    made: list[ClusterRecord] = []
    for new in wanted:
        if times[new.name] > 1:
            outcomes[new.name] = Refused(Reason.INVALID_REQUEST, "Duplicate topic name.")
            continue
        try:
            topic = _new_topic(new, rules, taken)
            outcomes[new.name] = topic
            made.append(TopicStored(topic=topic))
        except Refused as refused:
            outcomes[new.name] = refused
    removed = [TopicRemoved(topic_id=each) for each in abandoned if each in state.topics]
    return [*removed, *made], outcomes


class _Taken:
    """Names, replicas and places that are in use, counting those of the request so far."""

    def __init__(
        self, state: ClusterState, rules: Rules, abandoned: Collection[TopicId] = ()
    ) -> None:
        self.state = state
        self.alive = rules.alive
        self.usable = state.usable_brokers()
        self.replicas = sum(state.replica_counts.values())
        self._abandoned = frozenset(abandoned)
        self._added: dict[str, TopicName] = {}
        self._placements: dict[int, Placement] = {}

    def check_name(self, name: TopicName) -> None:
        existing = self.state.colliding_name(name)
        if existing is not None and self._id_of(existing) in self._abandoned:
            existing = None
        existing = existing or self._added.get(collision_key(name))
        if existing == name:
            raise Refused(Reason.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        if existing is not None:
            detail = f"Topic '{name}' collides with existing topic: {existing}"
            raise Refused(Reason.INVALID_TOPIC, detail)

    def add(self, topic: Topic, first: int = 0) -> Topic:
        self._added[collision_key(topic.name)] = topic.name
        self.replicas += sum(len(each.replicas) for each in topic.assignments[first:])
        return topic

    def place(self, count: int, factor: int) -> list[tuple[BrokerId, ...]]:
        """Places for partitions whose number the asker did not say where to put."""
        if factor > len(self.usable):
            detail = (
                f"Unable to replicate the partition {factor} time(s): "
                f"this cluster has {len(self.usable)} broker(s)."
            )
            raise Refused(Reason.INVALID_REPLICATION_FACTOR, detail)
        placement = self._placements.get(factor)
        if placement is None:
            placement = self._placements[factor] = Placement(
                candidates(self.usable, self.alive, factor),
                alive=self.alive,
                replica_counts=self.state.replica_counts,
                preferred_counts=self.state.preferred_counts,
            )
        return [placement.place(factor) for _ in range(count)]

    def assignments(self, places: Iterable[Iterable[int]]) -> tuple[Assignment, ...]:
        brokers = self.state.brokers
        return tuple(
            Assignment(
                tuple(BrokerId(node) for node in place),
                tuple(brokers[BrokerId(node)].replica_id for node in place),
            )
            for place in places
        )

    def check_limits(self, partitions: int, added: int, factor: int) -> None:
        if partitions > PARTITIONS_PER_TOPIC_MAX:
            detail = f"A topic can have {PARTITIONS_PER_TOPIC_MAX} partitions, not {partitions}."
            raise Refused(Reason.INVALID_PARTITIONS, detail)
        room = PARTITIONS_PER_NODE_MAX * len(self.state.brokers)
        if self.replicas + added * factor > room:
            detail = (
                f"A broker can have {PARTITIONS_PER_NODE_MAX} partitions: "
                f"{self.replicas} are in use and {added * factor} more are asked for."
            )
            raise Refused(Reason.INVALID_PARTITIONS, detail)

    def _id_of(self, name: TopicName) -> TopicId | None:
        topic = self.state.topic(name)
        return None if topic is None else topic.topic_id


def _new_topic(new: NewTopic, rules: Rules, taken: _Taken) -> Topic:
    if new.name == CLUSTER_METADATA or is_internal(new.name) != new.internal:
        detail = f"Creation of internal topic {new.name} is prohibited."
        raise Refused(Reason.INVALID_REQUEST, detail)
    name = check_topic_name(new.name)
    taken.check_name(name)
    configs = check_topic_configs(new.configs, rules.broker_settings)
    topic = Topic(
        name=name,
        topic_id=rules.new_topic_id(),
        assignments=taken.assignments(_places_of(new, rules, taken)),
        configs=configs,
        internal=new.internal,
    )
    return taken.add(topic)


def _places_of(new: NewTopic, rules: Rules, taken: _Taken) -> Sequence[Iterable[int]]:
    if new.assignments:
        return _places_assigned(new, taken)
    if new.replication_factor < UNSET or new.replication_factor == 0:
        detail = "Replication factor must be larger than 0, or -1 to use the default value."
        raise Refused(Reason.INVALID_REPLICATION_FACTOR, detail)
    if new.partitions < UNSET or new.partitions == 0:
        detail = "Number of partitions must be larger than 0, or -1 to use the default value."
        raise Refused(Reason.INVALID_PARTITIONS, detail)
    factor = new.replication_factor
    if factor == UNSET:
        default = rules.replication_factor_default
        if new.internal:
            default = rules.internal_factors[new.name]
        factor = max(1, min(default, len(taken.usable)))
    count = rules.partitions_default if new.partitions == UNSET else new.partitions
    taken.check_limits(count, count, factor)
    return taken.place(count, factor)


def _places_assigned(new: NewTopic, taken: _Taken) -> Sequence[Iterable[int]]:
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
    places = [brokers for _, brokers in sorted(new.assignments, key=lambda pair: pair[0])]
    check_assignments(places, taken.state.brokers, factor=None)
    taken.check_limits(len(places), len(places), len(places[0]))
    return places


def check_assignments(
    places: Iterable[Brokers], known: Collection[int], *, factor: int | None
) -> None:
    """Each names known brokers, none twice, and all have the same number of them."""
    for brokers in places:
        fault = _fault_of_assignment(brokers, known, factor)
        if fault is not None:
            detail = f"The manual partition assignment {fault}."
            raise Refused(Reason.INVALID_REPLICA_ASSIGNMENT, detail)
        factor = len(brokers)


def _fault_of_assignment(
    brokers: Brokers, known: Collection[int], factor: int | None
) -> str | None:
    if not brokers:
        return "has an empty list of replicas"
    if len(set(brokers)) != len(brokers):
        return f"names a broker more than once: {list(brokers)}"
    unknown = [broker for broker in brokers if broker not in known]
    if unknown:
        return f"names broker {unknown[0]}, which this cluster does not have"
    if factor is not None and len(brokers) != factor:
        return f"has a partition with {len(brokers)} replica(s) where others have {factor}"
    return None


# Growing


def decide_growth(
    state: ClusterState, wanted: Sequence[Growth], rules: Rules
) -> tuple[list[ClusterRecord], dict[str, Grown | Refused]]:
    times = Counter(growth.name for growth in wanted)
    taken = _Taken(state, rules)
    outcomes: dict[str, Grown | Refused] = {}
    records: list[ClusterRecord] = []
    for growth in wanted:
        try:
            if times[growth.name] > 1:
                raise Refused(Reason.INVALID_REQUEST, "Duplicate topic name.")
            grown = _grown(state, growth, taken)
            outcomes[growth.name] = grown
            records.append(TopicStored(topic=grown.topic))
        except Refused as refused:
            outcomes[growth.name] = refused
    return records, outcomes


def _grown(state: ClusterState, growth: Growth, taken: _Taken) -> Grown:
    topic = _existing(state, growth.name)
    if topic.internal:
        # A group's partition follows from their number: more of them would orphan its offsets.
        detail = f"Topic '{topic.name}' is internal: its number of partitions is fixed."
        raise Refused(Reason.INVALID_REQUEST, detail)
    if growth.partitions == topic.partitions:
        detail = f"Topic already has {topic.partitions} partition(s)."
        raise Refused(Reason.INVALID_PARTITIONS, detail)
    if growth.partitions < topic.partitions:
        detail = (
            f"The topic {topic.name} has {topic.partitions} partition(s); "
            f"{growth.partitions} would not be an increase."
        )
        raise Refused(Reason.INVALID_PARTITIONS, detail)
    added = taken.assignments(_places_added(topic, growth, taken))
    grown = replace(topic, assignments=(*topic.assignments, *added))
    return Grown(taken.add(grown, topic.partitions), topic.partitions)


def _places_added(topic: Topic, growth: Growth, taken: _Taken) -> Sequence[Iterable[int]]:
    added = growth.partitions - topic.partitions
    factor = len(topic.assignments[0].replicas)
    taken.check_limits(growth.partitions, added, factor)
    if growth.assignments is None:
        return taken.place(added, factor)
    if len(growth.assignments) != added:
        detail = (
            f"{added} partition(s) are to be added, "
            f"but {len(growth.assignments)} assignment(s) were given."
        )
        raise Refused(Reason.INVALID_REPLICA_ASSIGNMENT, detail)
    check_assignments(growth.assignments, taken.state.brokers, factor=factor)
    return growth.assignments


# Taking back


def decide_withdrawal(
    state: ClusterState, unmade: Iterable[tuple[Topic, int]]
) -> tuple[list[ClusterRecord], None]:
    """Takes partitions back that could not be made: each topic from the given one on.

    A topic that someone changed meanwhile is left: others rely on it already.
    """
    records: list[ClusterRecord] = []
    for topic, first in unmade:
        now = state.topics.get(topic.topic_id)
        if now is None or now.assignments != topic.assignments:
            continue
        if first == 0:
            records.append(TopicRemoved(topic_id=topic.topic_id))
        else:
            records.append(TopicStored(topic=replace(now, assignments=now.assignments[:first])))
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
    return [TopicRemoved(topic_id=topic_id) for topic_id in doomed], outcomes


def _deletable(state: ClusterState, choice: TopicName | TopicId) -> Topic:
    topic = _existing(state, choice) if isinstance(choice, str) else _existing_by_id(state, choice)
    if topic.internal:
        detail = f"Topic '{topic.name}' is internal and can't be deleted."
        raise Refused(Reason.INVALID_REQUEST, detail)
    return topic


def _existing(state: ClusterState, name: str) -> Topic:
    topic = state.topic(name)
    if topic is None:
        raise Refused(Reason.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{name}'.")
    return topic


def _existing_by_id(state: ClusterState, topic_id: TopicId) -> Topic:
    topic = state.topics.get(topic_id)
    if topic is None:
        raise Refused(Reason.UNKNOWN_TOPIC_ID, f"There is no topic with id {topic_id}.")
    return topic
