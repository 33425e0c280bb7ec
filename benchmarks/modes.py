"""How large the workloads are: `full` measures, `quick` only shows that they still run."""

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    messages_of_100_bytes: int
    messages_of_1_kilobyte: int
    rounds: int
    starts: int
    partitions: int
    idle_seconds: float
    small_requests: int
    recovery_bytes: int
    kills: int


MODES = {
    "full": Mode(
        messages_of_100_bytes=2_000_000,
        messages_of_1_kilobyte=500_000,
        rounds=5,
        starts=7,
        partitions=1_000,
        idle_seconds=10,
        small_requests=50_000,
        recovery_bytes=1024 * MIB,
        kills=50,
    ),
    "quick": Mode(
        messages_of_100_bytes=50_000,
        messages_of_1_kilobyte=10_000,
        rounds=1,
        starts=2,
        partitions=100,
        idle_seconds=1,
        small_requests=2_000,
        recovery_bytes=16 * MIB,
        kills=2,
    ),
}
