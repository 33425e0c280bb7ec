"""Every method that doors may call, in one table."""

from penstock.broker.doors import administration, copies, streams
from penstock.broker.doors.desk import Desk
from penstock.broker.services import Services
from penstock.broker.share_coordinators import Peers
from penstock.model.ids import BrokerId

METHODS = (*streams.METHODS, *administration.METHODS, *copies.METHODS)


def make_desk(own: BrokerId, services: Services, peers: Peers) -> Desk:
    return Desk(own=own, services=services, peers=peers, methods=METHODS)
