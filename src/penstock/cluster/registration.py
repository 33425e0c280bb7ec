"""Who belongs to the cluster: takes registrations, and keeps the metadata's own group in line.

A node registers with the controller directly, since one that joins has no copy of the metadata to
decide on. The controller tells the group of the metadata who shall belong to it.
"""

import json
from collections.abc import Sequence

from penstock.cluster.broker_decisions import decide_registration
from penstock.cluster.brokers import Broker
from penstock.cluster.deciding import CALL_TIMEOUT_S, ClusterFeed, ClusterHost, Decider
from penstock.cluster.metadata_group import metadata_members
from penstock.cluster.records import (
    BrokerConfigStored,
    BrokerRemoved,
    BrokerStored,
    ClusterRecord,
    broker_from_json,
    broker_to_json,
)
from penstock.model.errors import Reason, Refused
from penstock.model.ids import BrokerId, DirectoryId, Offset, ReplicaId
from penstock.replication.exchange import Exchange

REGISTER = "cluster.register"
# Records after which the metadata's own group may need other members.
_OF_BROKERS = (BrokerStored, BrokerRemoved, BrokerConfigStored)


class Registration:
    def __init__(
        self,
        *,
        host: ClusterHost,
        feed: ClusterFeed,
        exchange: Exchange,
        decider: Decider,
        founders: Sequence[ReplicaId],
        own: ReplicaId,
    ) -> None:
        self._host = host
        self._feed = feed
        self._exchange = exchange
        self._decider = decider
        self._founders = tuple(founders)
        self._own = own
        exchange.serve(REGISTER, self._register_other)
        host.on_ready(self._name_members)

    async def register(self, broker: Broker) -> Offset:
        """Returns up to where a copy of the metadata must go to show it."""
        request = json.dumps(broker_to_json(broker)).encode()

        async def there(controller: BrokerId) -> Offset:
            reply = await self._exchange.call(controller, REGISTER, request, CALL_TIMEOUT_S)
            return Offset(int(json.loads(reply)["end"]))

        async def here() -> Offset:
            return await self._register(broker)

        return await self._decider.persist(here, there)

    def follow(self, records: Sequence[ClusterRecord]) -> None:
        """These became part of the metadata."""
        if any(isinstance(record, _OF_BROKERS) for record in records):
            self._name_members()

    async def _register(self, broker: Broker) -> Offset:
        live = self._live_directory(broker.id)
        _, end = await self._decider.decide_here(
            lambda state: decide_registration(state, broker, live)
        )
        return end

    async def _register_other(self, _: BrokerId, payload: bytes) -> bytes:
        try:
            broker = broker_from_json(json.loads(payload))
        except (KeyError, TypeError, ValueError) as error:
            raise Refused(Reason.INVALID_REQUEST, f"not a broker: {error!r}") from None
        return json.dumps({"end": await self._register(broker)}).encode()

    def _live_directory(self, number: BrokerId) -> DirectoryId | None:
        if number == self._own.node:
            return self._own.directory
        hello = self._exchange.hellos.get(number)
        return None if hello is None else hello.directory

    def _name_members(self) -> None:
        """Only the controller does: its copy is the newest, and an old one might name a broker
        that is gone or forget one that has come."""
        if self._host.is_ready:
            members = metadata_members(self._feed.state, self._founders, self._own)
            self._host.replica.set_wanted(members.voters, members.learners)
