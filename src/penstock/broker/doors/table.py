"""Every method that doors may call, in one table."""

from typing import Any

from penstock.broker.doors import (
    administration,
    copies,
    locks,
    members,
    monitoring,
    queue_leaders,
    queues,
    streams,
)
from penstock.broker.doors.desk import Desk, Method
from penstock.broker.services import Services
from penstock.broker.share_coordinators import Peers
from penstock.model.ids import BrokerId

METHODS: tuple[Method[Any], ...] = (
    *streams.METHODS,
    *administration.METHODS,
    *copies.METHODS,
    *locks.METHODS,
    *members.METHODS,
    *queues.METHODS,
    *queue_leaders.METHODS,
    *monitoring.METHODS,
)


def make_desk(own: BrokerId, services: Services, peers: Peers) -> Desk:
    return Desk(own=own, services=services, peers=peers, methods=METHODS)
