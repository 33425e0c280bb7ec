"""A simulated consumer as Kafka's are: metadata, fetch sessions, and leader epochs (KIP-320).

It reads everything from the beginning and must see every record once and in order, wherever the
leaderships go. What it has read is committed, so nobody may ever tell it that it was cut off. One
that stands in a rack reads from the follower there once a leader has sent it to that (KIP-392).
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from penstock.broker.fetch import FetchQuery
from penstock.broker.readers import Fetched, Wanted
from penstock.broker.services import Services
from penstock.frontdoor.kafka.errors import error_code
from penstock.frontdoor.kafka.fetch_sessions import (
    INITIAL_EPOCH,
    NO_SESSION,
    SessionAnswer,
    SessionStep,
)
from penstock.model.errors import Reason, Refused
from penstock.model.file_ranges import FileRange
from penstock.model.ids import NO_TOPIC_ID, BrokerId, PartitionId, TopicName
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.records.batch import decode_records
from penstock.replication.positions import Position
from penstock.replication.replica import Replica
from tests.sim.machine.world import World
from tests.sim.nodes.node import SimulatedNode, rack_of
from tests.sim.replicas.clients import whole_batch
from tests.sim.replicas.history import History, require

ANSWER_S_MAX = 3.0
OLD_PREFERENCE_CHANCE = 0.1
WAIT_MS = (0, 100, 500)
BYTES_MAX = (200, 4096)
_SESSION_OVER = frozenset(
    {ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH}
)


class Place(NamedTuple):
    """Where it is in one partition."""

    offset: int = 0
    # The term of the last batch that it read.
    last_term: int = -1
    # As the metadata said last.
    leader: BrokerId | None = None
    term: int = -1
    # Whether the leader of this term said that nothing was cut.
    is_validated: bool = True
    # The follower that the leader has sent it to.
    preferred: BrokerId | None = None

    @property
    def source(self) -> BrokerId | None:
        """Whom to ask next: what was cut only the leader says."""
        return self.leader if self.preferred is None or not self.is_validated else self.preferred


class Session:
    """What a consumer remembers of its fetch session with one node (KIP-227)."""

    def __init__(self) -> None:
        self.id, self.epoch = NO_SESSION, INITIAL_EPOCH
        self.told: dict[int, Place] = {}

    def begin_again(self) -> None:
        """The next request closes this session, if there still is one, and asks for another."""
        self.epoch = INITIAL_EPOCH
        self.told = {}

    def answered(self, session_id: int, places: Mapping[int, Place]) -> None:
        if session_id == NO_SESSION:
            self.id = NO_SESSION
            self.begin_again()
            return
        self.id = session_id
        self.epoch += 1
        self.told = dict(places)


class Reader:
    """One request at a time."""

    def __init__(
        self,
        world: World,
        nodes: Sequence[SimulatedNode],
        topic: str,
        keys: Sequence[PartitionId],
        history_of: Callable[[PartitionId], History | None],
        beside: BrokerId | None = None,
    ) -> None:
        self._world = world
        # The node in whose rack it stands.
        self._beside = beside
        self._nodes = {node.node: node for node in nodes}
        self._topic = TopicName(topic)
        self._history_of = history_of
        self._keys = keys
        self.places = {index: Place() for index in range(len(keys))}
        # By node and start of it: sessions end with their process.
        self._sessions: dict[BrokerId, Session] = {}
        self._asked = 0
        self._is_waiting = False
        # The last high watermark that each follower told, by node and partition.
        self._told: dict[tuple[BrokerId, int], tuple[Replica, int]] = {}
        self.records = 0
        self.incremental = 0
        # How many of the records came from followers.
        self.from_followers = 0

    def act(self) -> None:
        if self._is_waiting:
            return
        if self._beside is not None and self._world.random.random() < OLD_PREFERENCE_CHANCE:
            self.prefer(self._world.random.choice(list(self._nodes)))
        sources: dict[BrokerId, list[int]] = {}
        for index, place in self.places.items():
            if place.source is not None and self._nodes[place.source].is_responsive:
                sources.setdefault(place.source, []).append(index)
            elif place.preferred is not None:
                self.places[index] = place._replace(preferred=None)
        if sum(map(len, sources.values())) < len(self.places):
            self._refresh()
        if sources:
            node = self._world.random.choice(list(sources))
            self._ask(self._nodes[node], sources[node])

    def prefer(self, node: BrokerId) -> None:
        """Clients keep for minutes where they were sent, whatever has become of it since."""
        for index, place in self.places.items():
            if place.leader is not None:
                self.places[index] = place._replace(preferred=node)

    def start_over(self) -> None:
        """As another consumer, which begins at the beginning."""
        self._asked += 1
        self._is_waiting = False
        self._sessions.clear()
        self.places = {index: Place() for index in self.places}

    def is_at_the_end(self, ends: Mapping[int, int]) -> bool:
        return all(place.offset == ends[index] for index, place in self.places.items())

    # Metadata

    def _refresh(self) -> None:
        """Any node may be asked; an answer that is older than what is known does not count."""
        nodes = [node for node in self._nodes.values() if node.is_responsive]
        if not nodes:
            return
        server = self._world.random.choice(nodes).server
        assert server is not None
        for index, place in self.places.items():
            known = server.services.leaderships.leader(self._keys[index].topic_id, index)
            if known is None or known.term < place.term:
                continue
            is_new = known.term > place.term and place.last_term >= 0
            self.places[index] = place._replace(
                leader=known.node, term=known.term, is_validated=place.is_validated and not is_new
            )

    def _lose_leader(self, index: int) -> None:
        self.places[index] = self.places[index]._replace(leader=None, preferred=None)

    # Asking

    def _ask(self, node: SimulatedNode, indexes: list[int]) -> None:
        self._asked += 1
        self._is_waiting = True
        give_up = partial(self._give_up, node.node, self._asked)
        node.ask(self._serve(node, indexes, self._asked), give_up)
        self._world.after(ANSWER_S_MAX, give_up)

    def _give_up(self, node: BrokerId, number: int) -> None:
        if self._is_waiting and number == self._asked:
            self._is_waiting = False
            self._session(node).begin_again()
            for index, place in self.places.items():
                if node in (place.leader, place.preferred):
                    self._lose_leader(index)

    def _session(self, node: BrokerId) -> Session:
        return self._sessions.setdefault(node, Session())

    async def _serve(self, node: SimulatedNode, indexes: list[int], number: int) -> None:
        assert node.server is not None
        services = node.server.services
        for index in indexes:
            if not self.places[index].is_validated:
                self._validate(services, index)
        ready = [index for index in indexes if self.places[index].is_validated]
        led = [index for index in ready if self.places[index].leader == node.node]
        if led and self._world.random.random() < 0.1:
            await self._look_at_the_end(services, led[0])
        if ready:
            await self._fetch(node, services, ready, number)
        if number == self._asked:
            self._is_waiting = False

    def _validate(self, services: Services, index: int) -> None:
        place = self.places[index]
        try:
            term, end = services.offsets.end_of_term(
                self._topic, index, place.last_term, term=place.term
            )
        except Refused:
            self._lose_leader(index)
            return
        require(
            term == place.last_term and end >= place.offset,
            f"partition {index} was read up to {place.offset} in term {place.last_term}, and its "
            f"leader of term {place.term} says that term {term} ended at {end}",
        )
        self.places[index] = place._replace(is_validated=True)

    async def _look_at_the_end(self, services: Services, index: int) -> None:
        place = self.places[index]
        try:
            found = await services.offsets.find(
                self._topic, index, Position.LATEST, term=place.term
            )
        except Refused:
            return
        require(
            found.offset >= place.offset,
            f"partition {index} was read up to {place.offset} and ends at {found.offset}",
        )

    async def _fetch(
        self, node: SimulatedNode, services: Services, indexes: list[int], number: int
    ) -> None:
        session, random = self._session(node.node), self._world.random
        places = {index: self.places[index] for index in indexes}
        changed = [index for index in indexes if session.told.get(index) != places[index]]
        forgotten = [(self._topic, index) for index in session.told if index not in places]
        self.incremental += session.epoch > INITIAL_EPOCH
        query = FetchQuery(
            wait_ms_max=random.choice(WAIT_MS),
            bytes_min=1,
            bytes_max=random.choice(BYTES_MAX),
            rack="" if self._beside is None else rack_of(self._beside),
        )
        step = SessionStep(session.id, session.epoch, False)
        wanted = [self._wanted(index) for index in changed]
        try:
            context = node.fetch_sessions(services).begin(step, wanted, forgotten)
            answer = await services.fetch.fetch(context, query)
        except Refused as refused:
            require(error_code(refused) in _SESSION_OVER, f"a fetch was refused: {refused}")
            session.begin_again()
            return
        contents = [(each, _bytes_of(each)) for each in answer.partitions]
        answer.release()
        if number != self._asked or not self._is_waiting:
            # Nobody hears of it.
            return
        assert isinstance(answer, SessionAnswer)
        session.answered(answer.session_id, places)
        for fetched, content in contents:
            self._take(node, fetched, content)

    def _wanted(self, index: int) -> Wanted:
        place = self.places[index]
        return Wanted(
            self._topic,
            NO_TOPIC_ID,
            index,
            offset=place.offset,
            bytes_max=self._world.random.choice(BYTES_MAX),
            term=place.term,
            last_fetched_term=place.last_term,
        )

    # Reading

    def _take(self, node: SimulatedNode, fetched: Fetched, content: bytes) -> None:
        index = fetched.wanted.partition
        place = self.places[index]
        require(
            fetched.diverging is None,
            f"partition {index} was read up to {place}, and is said to differ: {fetched.diverging}",
        )
        if fetched.reason is not None:
            require(
                fetched.reason is not Reason.OFFSET_OUT_OF_RANGE,
                f"offset {place.offset} of partition {index} is said to be out of range",
            )
            self._lose_leader(index)
        elif fetched.preferred is not None:
            self._go_to(fetched.preferred, index)
        elif place.leader != node.node:
            self._check_follower(node, index, fetched.high_watermark)
            before = self.records
            self._read(index, content, fetched.high_watermark)
            self.from_followers += self.records - before
        else:
            require(
                fetched.high_watermark >= place.offset,
                f"partition {index} was read up to {place.offset}, and its high watermark is "
                f"{fetched.high_watermark}",
            )
            self._read(index, content, fetched.high_watermark)

    def _go_to(self, follower: BrokerId, index: int) -> None:
        """It is in sync and has the offset, unless its disk has lost something since."""
        place = self.places[index]
        replica = self._nodes[follower].replica(self._keys[index])
        if replica is not None and replica.stopped_because is None and not replica._refill.is_due:
            require(
                replica.log_start_offset <= place.offset <= replica.log_end_offset,
                f"a consumer at {place.offset} of partition {index} is sent to {follower}, which "
                f"has {replica.log_start_offset} to {replica.log_end_offset}",
            )
        self.places[index] = place._replace(preferred=follower)

    def _check_follower(self, node: SimulatedNode, index: int, high_watermark: int) -> None:
        """It has what it ever had, tells what is committed, and does not go back."""
        replica = node.replica(self._keys[index])
        if replica is None or replica.stopped_because is not None:
            return
        require(
            not replica._refill.is_due,
            f"{replica.id} serves a consumer, and has lost part of partition {index}",
        )
        require(
            high_watermark <= replica.high_watermark,
            f"{replica.id} tells of {high_watermark}, and knows of {replica.high_watermark}",
        )
        before, told = self._told.get((node.node, index), (replica, 0))
        require(
            before is not replica or told <= high_watermark,
            f"{replica.id} tells of {high_watermark} after {told}",
        )
        self._told[node.node, index] = replica, high_watermark

    def _read(self, index: int, content: bytes, end: int) -> None:
        place, history = self.places[index], self._history_of(self._keys[index])
        while content:
            header = whole_batch(content)
            if header is None:
                return
            require(header.next_offset <= end, f"a batch up to {header.next_offset} of {end}")
            for record in decode_records(content):
                if record.offset < place.offset:
                    continue
                require(
                    record.offset == place.offset,
                    f"partition {index} goes on with {record.offset} after {place.offset}",
                )
                if history is not None:
                    history.on_read(record.offset, record.value or b"")
                place = place._replace(offset=record.offset + 1, last_term=header.leader_epoch)
                self.records += 1
            self.places[index] = place
            content = content[header.size :]


def _bytes_of(fetched: Fetched) -> bytes:
    records = fetched.records
    return records.read() if isinstance(records, FileRange) else records or b""
