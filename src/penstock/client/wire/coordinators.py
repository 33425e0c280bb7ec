"""Which broker looks after a group, and questions to it; it is found again when it moves."""

import threading
from collections.abc import Callable
from typing import TypeVar

from penstock.client.connection import reason_of_failure
from penstock.client.wire.cluster_map import ClusterMap
from penstock.client.wire.errors import name_of, refused
from penstock.client.wire.link import VERSION_NEWEST
from penstock.client.wire.links import Links
from penstock.client.wire.patience import Patience
from penstock.client.wire.settings import WireSettings
from penstock.model.endpoint import Endpoint
from penstock.protocol.kafka.error_codes import RETRIABLE, ErrorCode
from penstock.protocol.kafka.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

_GROUP = 0

Answer = TypeVar("Answer")


class Coordinators:
    """Several threads may use one object."""

    def __init__(self, settings: WireSettings, links: Links, cluster_map: ClusterMap) -> None:
        self._settings = settings
        self._links = links
        self._map = cluster_map
        self._lock = threading.Lock()
        self._known: dict[str, Endpoint] = {}

    def ask(
        self,
        group: str,
        request: object,
        answer: type[Answer],
        complaint_of: Callable[[Answer], str | None],
        *,
        patience: Patience,
        version_max: int = VERSION_NEWEST,
    ) -> Answer:
        """The coordinator's answer, once it has no complaint that passes by itself.

        `complaint_of` says what passes by itself, and raises what does not.
        """
        while True:
            endpoint = self._find(group, patience)
            try:
                with self._links.using(endpoint, self._settings.request_timeout_s) as link:
                    found = link.ask(request, answer, version_max=version_max)
            except OSError as error:
                self._forget(group)
                patience.pause(reason_of_failure(error, self._settings.request_timeout_s))
                continue
            complaint = complaint_of(found)
            if complaint is None:
                patience.progress()
                return found
            self._forget(group)
            patience.pause(complaint)

    def _find(self, group: str, patience: Patience) -> Endpoint:
        with self._lock:
            known = self._known.get(group)
        while known is None:
            known, complaint = self._ask_for(group, patience)
            if known is None:
                patience.pause(complaint)
        with self._lock:
            self._known[group] = known
        return known

    def _ask_for(self, group: str, patience: Patience) -> tuple[Endpoint | None, str]:
        request = FindCoordinatorRequest(key=group, key_type=_GROUP, coordinator_keys=[group])
        finding = patience.another("finding a broker")
        answer = self._map.ask_any(request, FindCoordinatorResponse, patience=finding)
        found = answer.coordinators[0] if answer.coordinators else answer
        if found.error_code == ErrorCode.NONE:
            return Endpoint(found.host, found.port), ""
        if found.error_code not in RETRIABLE:
            raise refused(
                f"to name the coordinator of group {group}", found.error_code, found.error_message
            )
        return None, name_of(found.error_code)

    def _forget(self, group: str) -> None:
        with self._lock:
            self._known.pop(group, None)
