"""Proves which tasks of a write wait out an outage, and which take it for a wrong address."""

import pickle

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from penstock.client.free_ports import HeldPorts
from penstock.spark.writing.epoch import Epoch, TaskAttempt
from penstock.spark.writing.plan import WritePlan, write_plan
from tests.unit.client.wire.fake_broker import FakeCluster

SCHEMA = StructType([StructField("value", BinaryType())])
OUTSIDE_OF_STREAMS = None


def plan_for(bootstrap: str) -> WritePlan:
    options = {"kafka.bootstrap.servers": bootstrap, "topic": "orders"}
    plan: WritePlan = pickle.loads(
        pickle.dumps(write_plan(options, SCHEMA, streaming=True).having_looked())
    )
    return plan


def first_contact_s(plan: WritePlan, batch: int | None) -> float:
    epoch = None if batch is None else Epoch(query_id="a", batch_id=batch)
    attempt = TaskAttempt(epoch=epoch, partition=0, attempt=0)
    return plan.options_of(attempt).wire.first_contact_timeout_s


@pytest.mark.parametrize("batch", [OUTSIDE_OF_STREAMS, 0, 1])
def test_tasks_wait_for_brokers_that_the_driver_has_found(batch: int | None) -> None:
    with FakeCluster() as cluster:
        assert first_contact_s(plan_for(cluster.bootstrap), batch) == 600


@pytest.mark.parametrize(("batch", "limit_s"), [(OUTSIDE_OF_STREAMS, 5), (0, 5), (1, 600)])
def test_where_nobody_was_found_only_later_micro_batches_wait(
    batch: int | None, limit_s: float
) -> None:
    with HeldPorts() as ports:
        (dead,) = ports.take(1)
        assert first_contact_s(plan_for(f"127.0.0.1:{dead}"), batch) == limit_s
