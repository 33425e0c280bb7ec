"""The pytest plug-in as other projects use it: the examples of the how-to page are run."""

import contextlib
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from penstock.client import ClientError
from penstock.testing import Broker, ProcessBroker, ThreadBroker
from tests.e2e import processes

# A run starts processes of its own, a cluster among them.
PYTEST_TIMEOUT_S = 240
pytestmark = pytest.mark.timeout(300)
PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "test-your-code.md"


def examples() -> dict[str, str]:
    """The Python examples of the page by the file name in their first line."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    named = [(block.splitlines()[0].removeprefix("# "), block) for block in blocks]
    assert len({name for name, _ in named}) == len(blocks)
    return dict(named)


def run_pytest(directory: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=directory,
        env=processes.clean_environment(),
        capture_output=True,
        text=True,
        timeout=PYTEST_TIMEOUT_S,
    )


def send(bootstrap: str, topic: str, value: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": 50_000})
    failures: list[object] = []
    producer.produce(
        topic, value, on_delivery=lambda error, _: failures.append(error) if error else None
    )
    assert producer.flush(60) == 0
    assert failures == []


def topics(bootstrap: str) -> set[str]:
    return set(AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=60).topics)


@pytest.mark.parametrize("mode", ["process", "thread"])
def test_the_pages_examples_pass(tmp_path: Path, mode: str) -> None:
    for name, text in examples().items():
        if name == "test_a_crash.py" and mode == "thread":
            continue
        (tmp_path / name).write_text(text)
    outcome = run_pytest(tmp_path, f"--penstock-mode={mode}")
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    assert f"{5 if mode == 'process' else 4} passed" in outcome.stdout


def test_the_example_without_pytest_runs(tmp_path: Path) -> None:
    program = tmp_path / "without_pytest.py"
    program.write_text(examples()["without_pytest.py"])
    outcome = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=60
    )
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.stdout.startswith("a broker runs at 127.0.0.1:")


def test_each_test_gets_an_empty_broker_and_its_data_is_removed(tmp_path: Path) -> None:
    (tmp_path / "test_isolation.py").write_text(
        "from confluent_kafka.admin import AdminClient\n"
        "def look(broker):\n"
        "    client = AdminClient({'bootstrap.servers': broker.bootstrap})\n"
        "    assert client.list_topics(timeout=60).topics == {}\n"
        "    broker.create_topic('t')\n"
        "    open('seen', 'a').write(f'{broker.data_dir}\\n')\n"
        "def test_one(penstock_broker): look(penstock_broker)\n"
        "def test_two(penstock_broker): look(penstock_broker)\n"
    )
    outcome = run_pytest(tmp_path)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    directories = (tmp_path / "seen").read_text().splitlines()
    assert len(directories) == 2
    assert not [one for one in directories if Path(one).exists()]


def test_a_failing_test_still_ends_its_broker(tmp_path: Path) -> None:
    (tmp_path / "test_failing.py").write_text(
        "def test_fails(penstock_broker):\n"
        "    open('pid', 'w').write(str(penstock_broker._child.pid))\n"
        "    assert False\n"
    )
    assert run_pytest(tmp_path).returncode == 1
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


def test_a_broker_does_not_outlive_a_test_run_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "test_killed.py").write_text(
        "import os, signal\n"
        "def test_it(penstock_broker):\n"
        "    open('pid', 'w').write(str(penstock_broker._child.pid))\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert run_pytest(tmp_path).returncode == -signal.SIGKILL
    pid = int((tmp_path / "pid").read_text())
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(pid).wait(60)
    assert not psutil.pid_exists(pid)


def test_an_unknown_mode_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "test_mode.py").write_text("def test_it(penstock_broker): pass\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\npenstock_mode = magic\n")
    outcome = run_pytest(tmp_path)
    assert outcome.returncode != 0
    assert "not one of process, thread" in outcome.stdout + outcome.stderr


@pytest.mark.parametrize("kind", [ProcessBroker, ThreadBroker])
def test_a_restart_keeps_port_and_data(
    kind: type[ProcessBroker | ThreadBroker], tmp_path: Path
) -> None:
    with kind(tmp_path / "data") as broker:
        before = broker.bootstrap
        send(before, "orders", "one")
        broker.restart()
        assert broker.bootstrap == before
        assert "orders" in topics(broker.bootstrap)
        send(before, "orders", "two")


def test_a_killed_broker_starts_again_with_what_it_acknowledged(penstock_broker: Broker) -> None:
    send(penstock_broker.bootstrap, "orders", "one")
    penstock_broker.kill()
    penstock_broker.start()
    assert "orders" in topics(penstock_broker.bootstrap)


def test_a_broker_in_a_thread_says_that_it_can_not_be_killed(tmp_path: Path) -> None:
    with (
        ThreadBroker(tmp_path / "data") as broker,
        pytest.raises(ClientError, match="mode 'process'"),
    ):
        broker.kill()


@pytest.mark.parametrize("kind", [ProcessBroker, ThreadBroker])
def test_a_bad_setting_fails_the_start_with_its_reason(
    kind: type[ProcessBroker | ThreadBroker], tmp_path: Path
) -> None:
    broker = kind(tmp_path / "data", settings={"num.partitions": "many"})
    with pytest.raises(Exception, match=r"num\.partitions"):
        broker.start()


def test_the_plugin_costs_no_imports() -> None:
    """pytest loads it in every project that has Penstock installed."""
    program = (
        "import sys, penstock.testing.plugin; "
        "print([m for m in sys.modules if m in ('asyncio', 'confluent_kafka', 'rich', 'click') "
        "or m.startswith('penstock.') and not m.startswith('penstock.testing')])"
    )
    outcome = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert outcome.stdout == "[]\n"
