"""How large the workloads are: `full` measures, `quick` only shows that they still run."""

import time
from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    is_judged: bool
    messages_of_100_bytes: int
    messages_of_1_kilobyte: int
    rounds: int
    starts: int
    partitions: int
    idle_seconds: float
    small_requests: int
    unpipelined_requests: int
    connections: int
    requests_per_connection: int
    warm_up_seconds: float
    warm_up_messages: int
    latency_partitions: tuple[int, int, int]
    latency_seconds: float
    fetch_partitions: tuple[int, int]
    fetches: int
    fresh_partitions: int
    idle_partitions: int
    restart_partitions: int
    recovery_bytes: int
    kills: int
    groups: int
    group_members: int
    group_partitions: int
    large_group_members: int
    large_group_partitions: int
    queue_messages: int
    queue_rounds: int
    queue_delayed: int
    queue_due_seconds: float
    queue_arrivals: int
    http_seconds: float
    table_records: int
    sql_records: int
    door_rounds: int
    door_seconds: float
    idle_readers: int
    spark_processes_shared: bool
    spark_rounds: int
    spark_warm_up_rounds: int
    spark_records_of_100_bytes: int
    spark_records_of_1_kilobyte: int
    spark_writes_of_100_bytes: int
    spark_writes_of_1_kilobyte: int
    spark_triggers_warm: int
    spark_triggers: int
    spark_records_for_memory: int
    spark_micro_batches: int
    archive_records: int
    archive_epochs_for_memory: int
    replay_records: int
    pipeline_readings: int
    pipeline_rounds: int
    pipeline_warm_up_rounds: int

    def settle(self, seconds: float) -> None:
        """Let what came before die down, which matters only to figures that are judged."""
        if self.is_judged:
            time.sleep(seconds)


MODES = {
    "full": Mode(
        is_judged=True,
        messages_of_100_bytes=2_000_000,
        messages_of_1_kilobyte=500_000,
        rounds=5,
        starts=7,
        partitions=1_000,
        idle_seconds=10,
        small_requests=50_000,
        unpipelined_requests=5_000,
        connections=500,
        requests_per_connection=20,
        warm_up_seconds=60,
        warm_up_messages=1_000_000,
        latency_partitions=(100, 500, 2_000),
        latency_seconds=6,
        fetch_partitions=(500, 2_000),
        fetches=300,
        fresh_partitions=100,
        idle_partitions=5_000,
        restart_partitions=10_000,
        recovery_bytes=1024 * MIB,
        kills=50,
        groups=100,
        group_members=10_000,
        group_partitions=100,
        large_group_members=200,
        large_group_partitions=2_000,
        queue_messages=1_000_000,
        queue_rounds=3,
        queue_delayed=200_000,
        queue_due_seconds=80,
        queue_arrivals=200,
        http_seconds=4,
        table_records=4_000_000,
        sql_records=10_000_000,
        door_rounds=9,
        door_seconds=5,
        idle_readers=1_000,
        spark_processes_shared=False,
        spark_rounds=5,
        spark_warm_up_rounds=2,
        spark_records_of_100_bytes=4_000_000,
        spark_records_of_1_kilobyte=1_000_000,
        spark_writes_of_100_bytes=2_000_000,
        spark_writes_of_1_kilobyte=500_000,
        spark_triggers_warm=20,
        spark_triggers=40,
        spark_records_for_memory=50_000_000,
        spark_micro_batches=20,
        archive_records=10_000_000,
        archive_epochs_for_memory=20,
        replay_records=2_000_000,
        pipeline_readings=400_000,
        pipeline_rounds=3,
        pipeline_warm_up_rounds=1,
    ),
    "quick": Mode(
        is_judged=False,
        messages_of_100_bytes=10_000,
        messages_of_1_kilobyte=2_000,
        rounds=1,
        starts=2,
        partitions=30,
        idle_seconds=1,
        small_requests=500,
        unpipelined_requests=50,
        connections=10,
        requests_per_connection=5,
        warm_up_seconds=0.2,
        warm_up_messages=1_000,
        latency_partitions=(3, 5, 8),
        latency_seconds=0.3,
        fetch_partitions=(5, 20),
        fetches=10,
        fresh_partitions=3,
        idle_partitions=30,
        restart_partitions=30,
        recovery_bytes=4 * MIB,
        kills=2,
        groups=3,
        group_members=30,
        group_partitions=10,
        large_group_members=6,
        large_group_partitions=30,
        queue_messages=10_000,
        queue_rounds=1,
        queue_delayed=2_000,
        queue_due_seconds=1,
        queue_arrivals=5,
        http_seconds=0.2,
        table_records=20_000,
        sql_records=20_000,
        door_rounds=1,
        door_seconds=0.5,
        idle_readers=20,
        spark_processes_shared=True,
        spark_rounds=1,
        spark_warm_up_rounds=0,
        spark_records_of_100_bytes=5_000,
        spark_records_of_1_kilobyte=1_000,
        spark_writes_of_100_bytes=2_000,
        spark_writes_of_1_kilobyte=500,
        spark_triggers_warm=1,
        spark_triggers=3,
        spark_records_for_memory=100_000,
        spark_micro_batches=5,
        archive_records=20_000,
        archive_epochs_for_memory=5,
        replay_records=10_000,
        pipeline_readings=5_000,
        pipeline_rounds=1,
        pipeline_warm_up_rounds=0,
    ),
}
