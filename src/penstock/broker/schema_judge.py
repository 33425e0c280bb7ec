"""Judges batches by the schemas of their records: what was concluded is kept while it holds."""

import asyncio
from concurrent.futures import Executor
from typing import Final

from penstock.broker.known_schemas import KnownSchemas
from penstock.broker.schema_checks import (
    NO_TOKEN,
    Found,
    Named,
    fault_of,
    find_schemas,
    refusal,
)
from penstock.model.topic_config import SchemaValidation
from penstock.records.errors import CorruptBatch
from penstock.replication.admission import refused_bytes
from penstock.replication.replica import Replica

# Schemas that are known to fit a topic; more are looked up again.
PASSED_MAX: Final = 10_000


class SchemaJudge:
    def __init__(self, known: KnownSchemas) -> None:
        self._known = known
        self._passed: set[tuple[str, SchemaValidation, Named]] = set()
        # The version of the copy that these were found in.
        self._passed_in = -1

    def doubts(self, replica: Replica, batches: bytes | memoryview) -> bool:
        """Whether a small batch names a schema that is not known to fit; raises Refused for one
        that can't be read."""
        validation = replica.config.schema_validation
        if validation is None:
            return False
        self._known.read_on()
        return bool(self._faults(replica, validation, _found(batches, validation)))

    async def judge(self, replica: Replica, batches: bytes, executor: Executor) -> None:
        """Raises Refused; with NOT_ENOUGH_REPLICAS if nobody can say now."""
        validation = replica.config.schema_validation
        if validation is None:
            # It was turned off while the batch stood in line.
            return
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(executor, _found, batches, validation)
        faults = self._faults(replica, validation, found)
        if not faults:
            return
        # What names no schema will not become right by reading on.
        nameless = {each: fault for each, fault in faults.items() if each.token == NO_TOKEN}
        if not nameless:
            await self._known.catch_up()
            faults = self._faults(replica, validation, found)
        if faults:
            raise refusal(found, nameless or faults)

    def _faults(
        self, replica: Replica, validation: SchemaValidation, found: Found
    ) -> dict[Named, str]:
        known, passed, topic = self._known, self._passed, replica.partition.topic
        if self._passed_in != known.version or len(passed) > PASSED_MAX:
            passed.clear()
            self._passed_in = known.version
        faults: dict[Named, str] = {}
        for named in found:
            place = topic, validation, named
            if place in passed:
                continue
            fault = fault_of(named, topic, validation, known.state)
            if fault is None:
                passed.add(place)
            else:
                faults[named] = fault
        return faults


def _found(batches: bytes | memoryview, validation: SchemaValidation) -> Found:
    try:
        return find_schemas(batches, validation)
    except CorruptBatch as bad:
        raise refused_bytes(batches, bad) from None
