"""Runs the demonstration, from an empty directory to its summary.

Three nodes start, sensors send and controllers read from the first moment on. Spark comes up
beside them. When it is warm, or after half of the time without Spark, the node that leads most is
killed; the writes go on at the others, and it is started again.
"""

import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from types import FrameType

from penstock.cli.demo.cluster import NODES, DemoCluster, cluster_at_work, cluster_watched
from penstock.cli.demo.events import Event
from penstock.cli.demo.failover import Phase
from penstock.cli.demo.ledger import Ledger
from penstock.cli.demo.report import Summary, broker_summary
from penstock.cli.demo.screen import Screen, screen
from penstock.cli.demo.spark_side import SparkSide, import_early, spark_side
from penstock.cli.demo.view import View
from penstock.cli.demo.workers import (
    ALERTS,
    CONTROLLERS,
    GROUP,
    READINGS,
    controllers_at_work,
    reported,
    sensors_at_work,
)
from penstock.cli.failures import CommandFailed
from penstock.cli.interrupts import Interrupted
from penstock.client.admin import Admin

# Topics and their partitions, by the names that the pipeline has for them.
TOPICS = {READINGS: 3, ALERTS: 2, "readings-dead": 1}
ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
REFRESH_S = 0.1
START_S_MAX = 120.0
SPARK_S_MAX = 420.0
FAILOVER_S_MAX = 120.0
DRAIN_S_MAX = 240.0
REMOVE_S_MAX = 10.0
# There is something to see before the kill, while the node is down, and after it is back.
BEFORE_KILL_S = 1.0
WARM_S_MAX = 3.0
DOWN_S_MAX = 3.0
TIMED_S_MAX = 10.0
AFTER_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What the command line asks for."""

    seconds: float
    rate: int
    sensors: int
    with_spark: bool


def run_demo(wishes: Wishes, *, quiet: bool, picture: Path | None = None) -> Summary:
    """Start everything, let it work, and check what came out of it."""
    with ended_by_signals(), ExitStack() as running:
        shown = running.enter_context(screen(quiet=quiet, picture_path=picture))
        folder = running.enter_context(temporary_folder())
        cluster = running.enter_context(cluster_at_work(folder / "brokers"))
        demo = _Demo(wishes, cluster, shown)
        if wishes.with_spark:
            import_early()
        demo.await_nodes()
        admin = Admin(cluster.bootstrap)
        for topic, partitions in TOPICS.items():
            admin.topics.create(topic, partitions=partitions, replicas=len(NODES))
        if wishes.with_spark:
            demo.spark = running.enter_context(spark_side(cluster.bootstrap, folder))
        demo.work()
        offsets = admin.groups.describe(GROUP).offsets
        lag_at_end = sum(one.lag or 0 for one in offsets if one.topic == READINGS)
    return broker_summary(
        demo.ledger,
        seconds=demo.sending_s,
        lag_at_end=lag_at_end,
        pipeline=demo.spark.summary(demo.started_s) if demo.spark else None,
    )


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """A terminal that is closed ends all that the demonstration started, as Ctrl-C does."""

    def end(number: int, frame: FrameType | None) -> None:
        raise Interrupted(number)

    before = {number: signal.signal(number, end) for number in ENDING_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Removed again, also where a Spark that was cut short still writes for a moment."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    try:
        yield folder
    finally:
        deadline = time.monotonic() + REMOVE_S_MAX
        while folder.exists() and time.monotonic() < deadline:
            shutil.rmtree(folder, ignore_errors=True)
            time.sleep(REFRESH_S)


class _Demo:
    """The main thread's part: it starts the others, takes their events and keeps the books."""

    def __init__(self, wishes: Wishes, cluster: DemoCluster, shown: Screen | None) -> None:
        self.started_s = time.monotonic()
        self.ledger = Ledger()
        self.spark: SparkSide | None = None
        self.sending_s = 0.0
        self._wishes = wishes
        self._cluster = cluster
        self._shown = shown
        self._events: SimpleQueue[Event] = SimpleQueue()

    def await_nodes(self) -> None:
        deadline = time.monotonic() + START_S_MAX
        while not self._cluster.is_up:
            self._step_until(deadline, f"The nodes were not ready in {START_S_MAX:g} s.")

    def work(self) -> None:
        address, events, wishes = self._cluster.bootstrap, self._events, self._wishes
        topics = [READINGS, ALERTS] if self.spark else [READINGS]
        with (
            cluster_watched(address, READINGS, events),
            controllers_at_work(address, topics, events=events),
            sensors_at_work(
                address, count=wishes.sensors, rate=wishes.rate, events=events
            ) as sensors,
        ):
            began_s = time.monotonic()
            self._await_controllers()
            self._await_spark()
            self._await_time(
                began_s + BEFORE_KILL_S,
                time.monotonic() + min(WARM_S_MAX, wishes.seconds / 10),
                self.started_s + wishes.seconds / 2,
            )
            self._lose_a_node()
            self._await_time(
                time.monotonic() + AFTER_S, self._timed_enough_s(), self.started_s + wishes.seconds
            )
            sensors.stop()
            self.sending_s = time.monotonic() - began_s
            self._drain()

    def _await_controllers(self) -> None:
        """Until they share the partitions of readings."""
        deadline = time.monotonic() + START_S_MAX
        while not self.ledger.is_shared_by(CONTROLLERS, TOPICS[READINGS]):
            self._step_until(deadline, f"The controllers did not join in {START_S_MAX:g} s.")
        self.ledger.joined_us = time.time_ns() // 1000

    def _await_spark(self) -> None:
        """Until it is warm and has closed windows, so that there is something to see of it."""
        deadline = time.monotonic() + SPARK_S_MAX
        while self.spark is not None and not self.spark.has_shown_itself:
            self._step_until(deadline, f"Spark was not warm in {SPARK_S_MAX:g} s.")

    def _timed_enough_s(self) -> float:
        """When there have been alerts to time, however slowly Spark got warm."""
        if self.spark is None or self.spark.warm_s is None:
            return self.started_s
        return self.spark.warm_s + min(TIMED_S_MAX, self._wishes.seconds / 3)

    def _await_time(self, *times_s: float) -> None:
        """Until the last of these."""
        while time.monotonic() < max(times_s):
            self._step()

    def _lose_a_node(self) -> None:
        """Kill the one that leads most, see the writes go on, start it again, see it catch up."""
        failover, deadline = self.ledger.failover, time.monotonic() + FAILOVER_S_MAX
        while (victim := failover.victim(self.ledger.leaders)) is None:
            self._step_until(deadline, "Some partitions have no leader.")
        now_us = time.time_ns() // 1000
        failover.killed(victim, self.ledger.leaders, at_s=time.monotonic(), at_us=now_us)
        self._cluster.kill(victim)
        while failover.phase is Phase.DOWN:
            self._step_until(deadline, f"After node {victim} was killed, writes did not go on.")
        self._await_time(failover.moved_s + min(DOWN_S_MAX, self._wishes.seconds / 10))
        self._cluster.restart(victim)
        failover.restarted(at_s=time.monotonic())
        # What was seen of the cluster before the restart says nothing about the time after it.
        while not (self._cluster.is_up and self.ledger.is_in_sync_since(failover.restarted_s)):
            self._step_until(deadline, f"Node {victim} was killed and did not catch up.")
        failover.back(at_s=time.monotonic())

    def _step_until(self, deadline: float, reason: str) -> None:
        if time.monotonic() > deadline:
            raise CommandFailed(reason)
        self._step()

    def _drain(self) -> None:
        """Let the others catch up; what is missing after that is missing for good."""
        deadline = time.monotonic() + DRAIN_S_MAX
        while not self._is_complete() and time.monotonic() < deadline:
            self._step()

    def _is_complete(self) -> bool:
        return self.ledger.is_complete() and (self.spark is None or self.spark.is_complete)

    def _step(self) -> None:
        """Take what happened in the last tenth of a second and show it."""
        time.sleep(REFRESH_S)
        self._cluster.check()
        for event in reported(self._events):
            self.ledger.take(event)
            if self.spark is not None:
                self.spark.take(event)
        self.ledger.note_lag()
        if self.spark is not None:
            self.spark.look()
        if self._shown is not None:
            self._shown.show(self._view())

    def _view(self) -> View:
        spark = self.spark
        return View(
            started_s=self.started_s,
            now_s=time.monotonic(),
            seconds=self._wishes.seconds,
            nodes=dict(self._cluster.states),
            ledger=self.ledger,
            pipeline=None if spark is None else spark.ledger,
            spark_starts=0 if spark is None else spark.starts,
            spark_warm_s=None if spark is None else spark.warm_s,
        )
