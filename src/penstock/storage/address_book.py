"""Where other nodes were reached last: a file that a restarted node dials from.

The metadata knows better, but only once the node has talked to the others. After a power cut of
all nodes at once that would be a circle. The book is a hint: one that is lost or wrong costs a
node no more than the chance to dial first.
"""

import json
import logging
from collections.abc import Mapping
from pathlib import Path

from penstock.model.endpoint import Endpoint
from penstock.model.ids import BrokerId
from penstock.storage.file_system import FileSystem

logger = logging.getLogger(__name__)


def read_addresses(path: Path, file_system: FileSystem) -> dict[BrokerId, Endpoint]:
    if not file_system.exists(path):
        return {}
    try:
        return {
            BrokerId(int(node)): Endpoint(str(host), int(port))
            for node, (host, port) in json.loads(file_system.read(path)).items()
        }
    except (OSError, ValueError, TypeError, AttributeError) as error:
        logger.warning("the addresses in %s can't be read: %s", path, error)
        return {}


def write_addresses(
    path: Path, addresses: Mapping[BrokerId, Endpoint], file_system: FileSystem
) -> None:
    """Blocks until it is durable; raises OSError with the old book in place."""
    data = json.dumps({str(node): list(addresses[node]) for node in sorted(addresses)})
    file_system.write_atomically(path, data.encode() + b"\n")
