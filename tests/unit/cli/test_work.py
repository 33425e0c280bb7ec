"""`penstock work` without a broker: what commands are given, and what becomes of their records."""

import base64
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from penstock.cli.failures import CommandFailed
from penstock.cli.interrupts import Interrupted
from penstock.cli.work_pool import Policy, WorkPool
from penstock.cli.work_process import (
    VARIABLE_BYTES_MAX,
    Commands,
    Ended,
    clean_environment,
    variables_of,
)
from penstock.client.errors import ClientError
from penstock.client.wire.queue_leases import AckType, Lease, LeaseLost, OutcomeUnknown
from penstock.model.ids import PartitionIndex, TopicName, TopicPartition
from penstock.records.record import Record
from tests.waiting import wait_until

PLACE = TopicPartition(TopicName("orders"), PartitionIndex(3))
TOPIC_ID = UUID(int=7)


class FakeReader:
    """Hands out its records in turn; nobody but the test says when there are no more."""

    def __init__(self, *records: Record) -> None:
        self.records = list(records)
        self.settled: dict[int, AckType] = {}
        self.failures: dict[int, Exception] = {}
        self.failure: Exception | None = None
        self.is_closed = False
        self.changed = threading.Condition()
        self.is_stopped = False

    def take(self, count_max: int = 1, timeout_s: float | None = None) -> list[Lease]:
        with self.changed:
            self.changed.wait_for(
                lambda: self.records or self.is_stopped or self.failure, timeout_s
            )
            if self.failure is not None:
                raise self.failure
            if self.is_stopped or not self.records:
                return []
            return [Lease(PLACE, TOPIC_ID, self.records.pop(0), 1, self._settle)]

    def stop_taking(self) -> None:
        with self.changed:
            self.is_stopped = True
            self.changed.notify_all()

    def close(self, limit_s: float = 0.0, *, settle_s: float = 0.0) -> None:
        self.is_closed = True

    def fail(self, failure: Exception) -> None:
        with self.changed:
            self.failure = failure
            self.changed.notify_all()

    def _settle(self, lease: Lease, wish: AckType) -> "Future[None]":
        self.settled[lease.record.offset] = wish
        outcome: Future[None] = Future()
        failure = self.failures.get(lease.record.offset)
        if failure is None:
            outcome.set_result(None)
        else:
            outcome.set_exception(failure)
        return outcome


def records(*values: bytes | None) -> list[Record]:
    return [Record(offset=at, timestamp_ms=1_000 + at, value=one) for at, one in enumerate(values)]


def leased(record: Record) -> Lease:
    return Lease(PLACE, TOPIC_ID, record, 2, FakeReader()._settle)


def worked(
    reader: FakeReader, script: str, capfd: pytest.CaptureFixture[str], **policy: Any
) -> list[dict[str, Any]]:
    """The outcomes of `sh -c script` for all of the reader's records."""
    policy.setdefault("count_max", len(reader.records))
    commands = Commands(["sh", "-c", script], is_output_ours=True)
    WorkPool(reader, commands, Policy(**policy), as_json=True).run()
    return [json.loads(line) for line in capfd.readouterr().out.splitlines()]


# What a command is given


def test_a_record_is_described_in_the_environment(tmp_path: Path) -> None:
    record = Record(
        offset=42,
        timestamp_ms=1_700_000_000_000,
        key="schl\u00fcssel".encode(),
        value=b"v",
        headers=(("kind", b"late"), ("kind", None), ("raw", b"\xff\x00")),
    )
    found = variables_of(leased(record), tmp_path)
    assert json.loads(found.pop("PENSTOCK_HEADERS")) == [
        ["kind", "late"],
        ["kind", None],
        ["raw", {"base64": base64.b64encode(b"\xff\x00").decode()}],
    ]
    assert found == {
        "PENSTOCK_TOPIC": "orders",
        "PENSTOCK_PARTITION": "3",
        "PENSTOCK_OFFSET": "42",
        "PENSTOCK_ATTEMPT": "2",
        "PENSTOCK_TIMESTAMP": "1700000000000",
        "PENSTOCK_KEY": "schl\u00fcssel",
    }
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("key", [b"\xff\xfe", b"zero\x00byte"])
def test_a_key_that_no_variable_can_hold_is_given_in_base64(tmp_path: Path, key: bytes) -> None:
    found = variables_of(leased(Record(key=key)), tmp_path)
    assert "PENSTOCK_KEY" not in found
    assert base64.b64decode(found["PENSTOCK_KEY_BASE64"]) == key


def test_a_record_without_key_or_value_says_so(tmp_path: Path) -> None:
    found = variables_of(leased(Record()), tmp_path)
    assert found["PENSTOCK_NULL_VALUE"] == "1"
    assert found["PENSTOCK_HEADERS"] == "[]"
    assert not [name for name in found if "KEY" in name]


def test_what_is_too_long_for_an_environment_is_in_a_file(tmp_path: Path) -> None:
    long = b"x" * (VARIABLE_BYTES_MAX + 1)
    found = variables_of(leased(Record(key=long, value=b"", headers=(("h", long),))), tmp_path)
    assert Path(found["PENSTOCK_KEY_FILE"]).read_bytes() == long
    headers = json.loads(Path(found["PENSTOCK_HEADERS_FILE"]).read_text())
    assert headers == [["h", long.decode()]]
    assert not {"PENSTOCK_KEY", "PENSTOCK_KEY_BASE64", "PENSTOCK_HEADERS"} & found.keys()


def test_the_record_of_another_worker_is_not_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_KEY", "of another record")
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", "127.0.0.1:1")
    found = clean_environment()
    assert "PENSTOCK_KEY" not in found
    assert found["PENSTOCK_BOOTSTRAP"] == "127.0.0.1:1"


def test_files_of_a_record_are_there_for_its_command_and_gone_afterwards(
    capfd: pytest.CaptureFixture[str],
) -> None:
    long = b"k" * (VARIABLE_BYTES_MAX + 1)
    reader = FakeReader(Record(key=long, value=b"v"))
    script = 'wc -c < "$PENSTOCK_KEY_FILE" >&2; echo "$PENSTOCK_KEY_FILE" >&2'
    commands = Commands(["sh", "-c", script], is_output_ours=False)
    WorkPool(reader, commands, Policy(count_max=1), as_json=False).run()
    size, path, line = capfd.readouterr().err.splitlines()
    assert int(size) == len(long)
    assert not Path(path).exists()
    assert line.startswith("orders-3@0 acked (attempt 1, exit 0, ")


def test_a_command_that_does_not_read_its_input_is_not_waited_for(
    capfd: pytest.CaptureFixture[str],
) -> None:
    reader = FakeReader(*records(b"x" * (4 << 20)))
    (found,) = worked(reader, "exit 0", capfd)
    assert found["outcome"] == "acked"


# What becomes of records


def test_the_exit_code_says_what_becomes_of_a_record(capfd: pytest.CaptureFixture[str]) -> None:
    reader = FakeReader(*records(b"exit 0", b"exit 1", b"exit 65", b"kill -9 $$", b"exit 66"))
    found = worked(reader, 'eval "$(cat)"', capfd, reject_on=frozenset({65, 66}))
    assert [(one["outcome"], one["exit_code"], one["signal"]) for one in found] == [
        ("acked", 0, None),
        ("released", 1, None),
        ("rejected", 65, None),
        ("released", None, "SIGKILL"),
        ("rejected", 66, None),
    ]
    assert reader.settled == {
        0: AckType.ACCEPT,
        1: AckType.RELEASE,
        2: AckType.REJECT,
        3: AckType.RELEASE,
        4: AckType.REJECT,
    }
    assert reader.is_closed


def test_what_the_broker_did_not_take_is_not_called_acked(
    capfd: pytest.CaptureFixture[str],
) -> None:
    reader = FakeReader(*records(b"", b"", b""))
    reader.failures = {0: LeaseLost("It is lost."), 1: OutcomeUnknown("Nobody knows.")}
    found = worked(reader, "true", capfd)
    assert [one["outcome"] for one in found] == ["lost", "unknown", "acked"]
    assert [one["detail"] for one in found] == ["It is lost.", "Nobody knows.", ""]


def test_several_commands_run_at_once_and_no_more_than_that(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Each waits until two others are there, and looks that there is not a third one."""
    reader = FakeReader(*records(*[b""] * 6))
    script = f"""
        cd {tmp_path}; mkdir $PENSTOCK_OFFSET
        until [ -e seen-$((PENSTOCK_OFFSET / 3)) ] || [ $(ls -d [0-9] | wc -l) -eq 3 ]
        do [ $(ls -d [0-9] | wc -l) -le 3 ] || exit 9; sleep 0.01; done
        touch seen-$((PENSTOCK_OFFSET / 3))
        rmdir $PENSTOCK_OFFSET
    """
    found = worked(reader, script, capfd, concurrency=3)
    assert [one["outcome"] for one in found] == ["acked"] * 6


def test_a_worker_with_nothing_to_do_stops_when_it_was_asked_to(
    capfd: pytest.CaptureFixture[str],
) -> None:
    reader = FakeReader(*records(b"", b""))
    found = worked(reader, "sleep 0.3", capfd, count_max=None, idle_s=0.1, concurrency=2)
    assert len(found) == 2


def test_a_command_that_can_not_be_started_is_told_before_anything_is_taken(
    tmp_path: Path,
) -> None:
    plain = tmp_path / "plain"
    plain.write_text("no program")
    for name, reason in (
        ("no-such-command", "there is no such command"),
        (str(tmp_path / "missing"), "there is no such command"),
        (str(plain), "it is not executable"),
        (str(tmp_path), "it is a folder"),
    ):
        with pytest.raises(CommandFailed, match=f"can't be started: {reason}"):
            Commands([name], is_output_ours=False)


def test_a_command_that_goes_away_ends_the_worker_and_settles_nothing(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\nrm $0\n")
    program.chmod(0o755)
    reader = FakeReader(*records(b"", b"", b""))
    commands = Commands([str(program)], is_output_ours=False)
    with pytest.raises(CommandFailed, match="can't be started: no such file"):
        WorkPool(reader, commands, Policy(), as_json=True).run()
    assert reader.settled == {0: AckType.ACCEPT}
    assert reader.is_closed


def test_what_is_wrong_with_the_queue_ends_the_worker() -> None:
    reader = FakeReader()
    reader.fail(ClientError("The group is of another kind."))
    commands = Commands(["true"], is_output_ours=False)
    with pytest.raises(ClientError, match="another kind"):
        WorkPool(reader, commands, Policy(concurrency=3), as_json=True).run()


# How it ends


def signalled(
    reader: FakeReader,
    command: list[str],
    is_ready: Callable[[], object],
    *numbers: int,
    **policy: Any,
) -> float:
    """Runs until the signals that come when it is ready; returns how long it took from then on."""
    pool = WorkPool(reader, Commands(command, is_output_ours=True), Policy(**policy), as_json=True)
    sent_at: list[float] = []

    def send() -> None:
        wait_until("the command runs", is_ready)
        sent_at.append(time.monotonic())
        for number in numbers:
            os.kill(os.getpid(), number)
            # The same one twice at a time would be one.
            wait_until("it is noticed", lambda: reader.is_stopped)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        pool.run()
    finally:
        sender.join()
    return time.monotonic() - sent_at[0]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_running_commands_finish_and_nothing_begin(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, number: int
) -> None:
    reader = FakeReader(*records(b"", b"", b""))
    script = f"touch {tmp_path}/begun; until [ -e {tmp_path}/go ]; do sleep 0.02; done"

    def is_ready() -> bool:
        if not (tmp_path / "begun").exists():
            return False
        threading.Timer(0.3, (tmp_path / "go").touch).start()
        return True

    signalled(reader, ["sh", "-c", script], is_ready, number)
    (found,) = map(json.loads, capfd.readouterr().out.splitlines())
    assert (found["outcome"], found["cut_off"]) == ("acked", False)
    assert reader.settled == {0: AckType.ACCEPT}
    assert len(reader.records) == 2
    assert reader.is_closed


def test_commands_that_take_too_long_are_ended_and_their_records_released(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Also one that says of itself that it went well."""
    reader = FakeReader(*records(b""))
    script = f"trap 'exit 0' TERM; touch {tmp_path}/begun; while :; do sleep 0.02; done"
    signalled(
        reader,
        ["sh", "-c", script],
        (tmp_path / "begun").exists,
        signal.SIGTERM,
        drain_s=0.2,
    )
    (found,) = map(json.loads, capfd.readouterr().out.splitlines())
    assert (found["outcome"], found["exit_code"], found["cut_off"]) == ("released", 0, True)
    assert reader.settled == {0: AckType.RELEASE}


def test_a_command_that_ignores_being_asked_is_ended_with_all_it_started(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    reader = FakeReader(*records(b""))
    script = f"trap '' TERM; sleep 1000 & echo $! > {tmp_path}/child; wait; sleep 1000"

    def is_ready() -> bool:
        return (tmp_path / "child").exists() and bool((tmp_path / "child").read_text().strip())

    signalled(reader, ["sh", "-c", script], is_ready, signal.SIGTERM, drain_s=0.1)
    (found,) = map(json.loads, capfd.readouterr().out.splitlines())
    assert (found["outcome"], found["signal"]) == ("released", "SIGKILL")
    child = int((tmp_path / "child").read_text())
    wait_until("the child is gone", lambda: not is_running(child))


def is_running(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    # Whoever inherits it may not have looked after it yet.
    return state != "Z"


def test_a_second_signal_ends_running_commands_at_once(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    reader = FakeReader(*records(b""))
    script = f"touch {tmp_path}/begun; exec sleep 1000"
    with pytest.raises(Interrupted) as ended:
        signalled(
            reader,
            ["sh", "-c", script],
            (tmp_path / "begun").exists,
            signal.SIGINT,
            signal.SIGTERM,
            drain_s=1_000.0,
        )
    assert ended.value.exit_code == 128 + signal.SIGTERM
    (found,) = map(json.loads, capfd.readouterr().out.splitlines())
    assert (found["outcome"], found["signal"]) == ("released", "SIGTERM")


def test_nothing_begins_after_commands_were_cut_off() -> None:
    commands = Commands(["true"], is_output_ours=False)
    assert isinstance(commands.run(leased(Record())), Ended)
    commands.cut_off()
    assert commands.run(leased(Record())) is None
    assert commands.running == 0
