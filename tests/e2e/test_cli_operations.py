"""`penstock config`, `profile`, `bench` and `doctor` against a real broker."""

import json
import signal
import tarfile
from pathlib import Path

import pytest

from penstock.testing import Broker
from tests.e2e import processes
from tests.e2e.commands import COMMAND_TIMEOUT_S, Shell, fresh
from tests.e2e.conftest import MakeBroker


@pytest.fixture
def shell(penstock_session_broker: Broker) -> Shell:
    return Shell.at(penstock_session_broker)


def test_settings_of_a_topic_are_set_shown_and_unset(shell: Shell) -> None:
    name = fresh("orders")
    shell.run("topic", "create", name)
    of = ("--topic", name)
    assert shell.run("config", "get", "retention.ms", *of) == "604800000\n"
    told = shell.run("config", "set", "retention.ms=1000", "segment.ms=5000", *of)
    assert f"Setting retention.ms of topic {name} is now 1000." in told
    changed = shell.json("config", "list", "--changed", *of)
    found = {one["name"]: (one["value"], one["source"]) for one in changed}
    assert found["retention.ms"] == ("1000", "dynamic topic")
    assert "cleanup.policy" not in found
    assert "log.retention.hours=168" in shell.run("config", "list", *of)
    shell.run("config", "unset", "retention.ms", *of)
    described = shell.json("config", "get", "retention.ms", *of)
    assert (described["value"], described["source"]) == ("604800000", "default")
    assert described["documentation"]


def test_settings_of_nodes_are_set_shown_and_unset(make_broker: MakeBroker) -> None:
    shell = Shell(make_broker().start().bootstrap)
    shell.run("config", "set", "log.retention.ms=2000", "--all-nodes")
    name = "log.retention.ms"
    assert name in {one["name"] for one in shell.json("config", "list", "--all-nodes")}
    found = shell.json("config", "get", "log.retention.ms", "--node", "0")
    assert (found["value"], found["source"]) == ("2000", "dynamic default broker")
    shell.run("config", "set", "log.retention.ms=3000", "--node", "0")
    assert shell.run("config", "get", "log.retention.ms", "--node", "0") == "3000\n"
    shell.run("config", "unset", "log.retention.ms", "--node", "0")
    shell.run("config", "unset", "log.retention.ms", "--all-nodes")
    assert name not in {one["name"] for one in shell.json("config", "list", "--all-nodes")}


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("get", "retention.m", "--node", "0"), "no setting retention.m of node 0; nearest is"),
        (("get", "retention.ms", "--topic", "nowhere"), "nowhere"),
        (("set", "no.such=1", "--node", "0"), "no.such"),
        (("set", "log.dirs=x", "--node", "0"), "log.dirs"),
        (("list", "--node", "7"), "no node 7"),
    ],
)
def test_what_can_not_be_set_or_shown_is_one_sentence(
    shell: Shell, arguments: tuple[str, ...], part: str
) -> None:
    assert part in shell.fails("config", *arguments)


def test_a_profile_leads_to_the_broker(penstock_session_broker: Broker, tmp_path: Path) -> None:
    shell = Shell.at(penstock_session_broker)
    address = shell.environment.pop("PENSTOCK_BOOTSTRAP")
    shell.environment["PENSTOCK_PROFILES"] = str(tmp_path / "profiles.toml")
    shell.run("profile", "add", "mine", address)
    name = fresh("orders")
    shell.run("topic", "create", name, "--profile", "mine")
    shell.run("profile", "use", "mine")
    assert name in shell.run("topic", "list")
    assert "no profile other" in shell.fails("topic", "list", "--profile", "other")


def test_load_is_measured_and_leaves_nothing_behind(shell: Shell) -> None:
    found = shell.json(
        "bench", "--producers", "2", "--consumers", "2", "--count", "2001", "--size", "100"
    )
    for kind in ("produce", "consume"):
        assert (found[kind]["records"], found[kind]["failed"]) == (2001, 0)
        latency = found[kind]["latency_ms"]
        assert list(latency) == ["p50", "p95", "p99", "p99.9", "max"]
        assert 0 < latency["p50"] <= latency["p99"] <= latency["max"]
        assert found[kind]["records_per_second"] > 0
    assert found["topic"] not in shell.run("topic", "list")


def test_load_keeps_to_its_rate_and_time_on_a_topic_that_exists(shell: Shell) -> None:
    name = fresh("load")
    shell.run("topic", "create", name, "-p", "3")
    outcome = shell.attempt("bench", name, "--rate", "200", "--seconds", "2")
    assert outcome.returncode == 0, outcome
    head, produced, consumed = (line.split() for line in outcome.stdout.splitlines())
    assert head[0] == "-" or "RECORDS" in head
    assert produced[0] == "produce"
    assert consumed[0] == "consume"
    assert 100 < int(produced[1]) <= 400
    # One more to warm up.
    (held,) = [one for one in shell.json("topic", "list") if one["name"] == name]
    assert held["records"] == int(produced[1]) + 1


def test_load_that_is_interrupted_shows_what_it_has_and_cleans_up(shell: Shell) -> None:
    with shell.start("bench", "--seconds", "600", "--rate", "100") as running:
        assert running.stderr is not None
        topic = running.stderr.readline().split()[1]
        running.send_signal(signal.SIGINT)
        out, _ = running.communicate(timeout=COMMAND_TIMEOUT_S)
        assert running.returncode in (1, 130)
        assert "Traceback" not in out
    assert topic not in shell.run("topic", "list")


def test_the_doctor_knows_a_broker_when_it_meets_one(shell: Shell, tmp_path: Path) -> None:
    address = shell.environment["PENSTOCK_BOOTSTRAP"]
    outcome = shell.attempt("doctor", "--kafka", address, "--data-dir", str(tmp_path), "--json")
    found = {one["name"]: one for one in json.loads(outcome.stdout)["checks"]}
    port = found[f"port {address.rpartition(':')[2]}"]
    assert (port["state"], "a broker of cluster" in port["text"]) == ("ok", True)
    assert list(tmp_path.iterdir()) == []
    shown = shell.attempt("doctor", "--kafka", "127.0.0.1:0", "--data-dir", str(tmp_path)).stdout
    assert shown.splitlines()[0].split()[:2] == ["ok", "Python"]


def test_health_of_a_node_that_runs_and_of_one_that_does_not(
    shell: Shell, broker: processes.Broker
) -> None:
    address = broker.http
    assert shell.run("health", "--http", address) == "The node is ready.\n"
    shell.environment["PENSTOCK_HTTP"] = f"0.0.0.0:{address.rpartition(':')[2]}"
    assert shell.run("health", "--in-sync") == "The node is in sync.\n"
    # Kafka's door is none that speaks HTTP.
    for wrong in ("127.0.0.1:1", broker.bootstrap):
        refused = shell.attempt("health", "--http", wrong, "--wait", "1")
        assert (refused.returncode, refused.stdout) == (1, "")
        assert refused.stderr.startswith(f"penstock: The node at {wrong} does not answer: ")
    for wrong in ("nonsense", "127.0.0.1:0"):
        assert shell.attempt("health", "--http", wrong).returncode == 2
    shell.environment["PENSTOCK_HTTP"] = "off"
    assert "HTTP door is off" in shell.attempt("health").stderr


def test_a_bundle_holds_what_a_report_needs_and_no_secret(
    shell: Shell, make_broker: MakeBroker, tmp_path: Path
) -> None:
    secret = "a-secret-that-nobody-shall-see"
    broker = make_broker().start(environment={"PENSTOCK_PEER_SECRET": secret})
    shell.environment |= {"PENSTOCK_BOOTSTRAP": broker.bootstrap, "PENSTOCK_PEER_SECRET": secret}
    shell.run("produce", "orders", stdin="two apples\n")
    shell.run("consume", "orders", "--group", "billing")
    log = tmp_path / "node.log"
    log.write_text(f"x{secret}x\n" + "line\n" * 10)
    file = tmp_path / "report.tar.gz"
    words = ["doctor", "--kafka", broker.bootstrap, "--http", broker.http]
    words += ["--data-dir", str(broker.data_dir), "--bundle", str(file), "--log", str(log)]
    said = shell.attempt(*words)
    assert file.exists(), said
    with tarfile.open(file) as archive:
        parts = {one.name: archive.extractfile(one).read() for one in archive}  # type: ignore[union-attr]
    listed = said.stdout.split("BYTES")[1]
    assert [name for name in parts if name.removeprefix("report/") not in listed] == []
    assert b"penstock_" in parts["report/node/metrics.txt"]
    assert b'"ok"' in parts["report/node/health-in-sync.txt"]
    (group,) = json.loads(parts["report/groups.json"])["groups"]
    assert (group["group"], group["offsets"][0]["committed"]) == ("billing", 1)
    assert json.loads(parts["report/cluster.json"])["partitions"] > 0
    assert [one["name"] for one in json.loads(parts["report/metadata.json"])["topics"]] == [
        "orders"
    ]
    settings = {one["name"]: one["value"] for one in json.loads(parts["report/settings.json"])}
    assert settings["peer_secret"] == "(hidden)"
    assert parts["report/logs/1-node.log"].startswith(b"x(hidden)x\nline\n")
    everything = b"".join(parts.values())
    assert secret.encode() not in everything
    assert b"two apples" not in everything
    again = shell.attempt(*words)
    assert (again.returncode, "exists already" in again.stderr) == (1, True)


def test_a_bundle_is_written_where_nothing_runs(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "report.tar.gz"
    words = ["doctor", "--kafka", "127.0.0.1:1", "--http", "127.0.0.1:2", "--bundle", str(file)]
    said = shell.attempt(*words, "--data-dir", str(tmp_path / "none"), "--json")
    assert json.loads(said.stdout)["bundle"]["cluster.json"] > 0
    with tarfile.open(file) as archive:
        content = archive.extractfile("report/cluster.json").read()  # type: ignore[union-attr]
    assert "No broker answers" in json.loads(content)["error"]
    assert shell.attempt("doctor", "--log", "x").returncode == 2
