"""What must hold of every replica's log once a run is over."""

from collections.abc import Sequence

from penstock.records.batch import decode_records, parse_header
from penstock.replication.replica import Replica
from tests.sim.replicas.clients import Producer
from tests.sim.replicas.history import DATA, GAP, READ_BYTES_MAX, Violation, require


class Decoded:
    """The records of batches by the bytes of these, which most replicas of a group share."""

    def __init__(self) -> None:
        self._records: dict[bytes, list[tuple[int, bytes]]] = {}

    def records(self, batch: bytes) -> list[tuple[int, bytes]]:
        """With their offsets."""
        known = self._records.get(batch)
        if known is None:
            known = self._records[batch] = _decode(batch)
        return known


def _decode(batch: bytes) -> list[tuple[int, bytes]]:
    if not parse_header(batch).record_count:
        return []
    records = list(decode_records(batch))
    require(all(record.value is not None for record in records), "a record lost its value")
    return [(record.offset, record.value or b"") for record in records]


def records_of(replica: Replica, decoded: Decoded) -> dict[int, bytes]:
    """Every record of the log, by offset, as the disk has it."""
    log = replica._log
    records: dict[int, bytes] = {}
    index = log.first_index
    while index <= log.last_index:
        for entry in log.entries(index, log.last_index + 1, READ_BYTES_MAX):  # type: ignore[arg-type]
            index = entry.index + 1  # type: ignore[assignment]
            if entry.kind == DATA:
                for offset, value in decoded.records(entry.batch):
                    if offset in records:
                        raise Violation(f"offset {offset} is there twice")
                    records[offset] = value
            else:
                assert entry.kind >= GAP
    return records


def last_offsets(producers: Sequence[Producer]) -> dict[bytes, int]:
    """Of each key, the last record that was acknowledged: compaction keeps it."""
    found = sorted(place for producer in producers for place in producer.offsets_by_key())
    return {key: offset for offset, key in found}


def check_acknowledged(
    producer: Producer,
    records: dict[int, bytes],
    start: int,
    *,
    last_of_key: dict[bytes, int] | None = None,
) -> None:
    """Each record once, in the producer's order, where it was said to be; in a compacted log only
    the last one of each key need be there."""
    own = [
        (offset, value)
        for offset, value in sorted(records.items())
        if value.startswith(b"%d:" % producer.id)
    ]
    values = [value for _, value in own]
    require(len(values) == len(set(values)), f"producer {producer.id} has a record twice")
    numbers = [int(value.split(b":")[1]) for value in values]
    require(numbers == sorted(numbers), f"records of producer {producer.id} are out of order")
    for value, offset in producer.acknowledged.items():
        if offset < start:
            continue
        is_kept = last_of_key is None or last_of_key[producer.key_of(value)] == offset
        found = records.get(offset)
        if found != value and (found is not None or is_kept):
            raise Violation(f"acknowledged {value!r} is not at offset {offset}, but {found!r}")
