"""What must hold of every replica's log once a run is over."""

from penstock.records.batch import decode_records, parse_header
from penstock.replication.replica import Replica
from tests.sim.replicas.clients import Producer
from tests.sim.replicas.history import GAP, READ_BYTES_MAX, require


def records_of(replica: Replica) -> dict[int, bytes]:
    """Every record of the log, by offset, as the disk has it."""
    log = replica._log
    records: dict[int, bytes] = {}
    index = log.first_index
    while index <= log.last_index:
        for entry in log.entries(index, log.last_index + 1, READ_BYTES_MAX):  # type: ignore[arg-type]
            index = entry.index + 1  # type: ignore[assignment]
            if entry.kind == 0 and parse_header(entry.batch).record_count:
                for record in decode_records(entry.batch):
                    assert record.value is not None
                    require(record.offset not in records, f"offset {record.offset} is there twice")
                    records[record.offset] = record.value
            else:
                assert entry.kind >= GAP
    return records


def check_acknowledged(
    producer: Producer, records: dict[int, bytes], start: int, *, compacts: bool
) -> None:
    """Each record once, in the producer's order, where it was said to be."""
    own = [
        (offset, value)
        for offset, value in sorted(records.items())
        if value.startswith(b"%d:" % producer.id)
    ]
    values = [value for _, value in own]
    require(len(values) == len(set(values)), f"producer {producer.id} has a record twice")
    numbers = [int(value.split(b":")[1]) for value in values]
    require(numbers == sorted(numbers), f"records of producer {producer.id} are out of order")
    last_of_key = {key: offset for offset, key in producer.offsets_by_key()}
    for value, offset in producer.acknowledged.items():
        if offset < start:
            continue
        is_kept = not compacts or last_of_key[producer.key_of(value)] == offset
        found = records.get(offset)
        require(
            found == value or (found is None and not is_kept),
            f"acknowledged {value!r} is not at offset {offset}, but {found!r}",
        )
