"""Flips bits in what a stopped node wrote last, as a bad disk does."""

import random
from collections.abc import Iterator
from pathlib import Path

from penstock.storage.checkpoint import read_checkpoint
from penstock.storage.file_system import RealFileSystem
from penstock.storage.layout import segment_path
from tests.e2e.cluster_history import History
from tests.e2e.cluster_logs import log_directories
from tests.e2e.cluster_nodes import Cluster
from tests.e2e.cluster_scenarios import GOES_ON_WITHIN_S

# Within the last batch, whatever it holds: an own entry of Raft takes 78 bytes.
LAST_BYTES = 60


def tails(data_dir: Path) -> Iterator[tuple[Path, int, int]]:
    """Each log's last segment that was written to since its checkpoint: from where on, and its
    size. What lies before was on disk for good, and rot there is damage."""
    file_system = RealFileSystem()
    for directory in log_directories(data_dir):
        known = {
            facts.base_offset: facts for facts in read_checkpoint(file_system, directory).segments
        }
        active = max(known)
        mark = known[active].size
        path = segment_path(directory, active)
        for newer in sorted(directory.glob("*.log")):
            if newer > path and newer.stat().st_size:
                path, mark = newer, 0
        if path.exists() and path.stat().st_size > mark:
            yield path, mark, path.stat().st_size


def flip_tail_bits(data_dir: Path, dice: random.Random, *, below: str = "") -> int:
    """One bit at the end of each log whose path holds `below`; gives how many were flipped."""
    flipped = 0
    for path, mark, size in tails(data_dir):
        if below in str(path):
            flip(path, dice.randrange(max(mark, size - LAST_BYTES), size), dice.randrange(8))
            flipped += 1
    return flipped


def rot_one(cluster: Cluster, history: History, dice: random.Random) -> None:
    """All processes end at one moment, and what one of them wrote last comes back with a flipped
    bit in every log. Two others are whole, so nothing may be lost and nobody has to help."""
    victim = dice.choice(list(cluster.nodes.values()))
    cluster.freeze_and_kill()
    assert flip_tail_bits(victim.data_dir, dice) > 0
    cluster.start()
    history.wait_for_progress(timeout_s=GOES_ON_WITHIN_S)


def flip(path: Path, position: int, bit: int = 0) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 1 << bit]))
