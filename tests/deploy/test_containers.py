"""Proves of the container files what can be proved without an engine.

Linters and schemas accept them. What they say runs as plain processes: the entry point of the
image, its health check, three nodes with the environment of compose.yaml, and the first process of
a container. Nothing else is built or pulled.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from penstock.client.free_ports import HeldPorts
from tests.deploy.dockerfile import Stage, read_stages
from tests.documents import ROOT
from tests.e2e.processes import clean_environment
from tests.test_docs import penstock_problem
from tests.waiting import wait_until

DEPLOY = ROOT / "deploy"
BIN = Path(sys.executable).parent
DOCKERFILE = DEPLOY / "Dockerfile"
COMPOSE = DEPLOY / "compose.yaml"
NODES = (1, 2, 3)
STOPS_S = 60.0
# What compose.yaml asks people to set.
GIVEN = {"PENSTOCK_PEER_SECRET": "a secret", "GRAFANA_PASSWORD": "another"}


def run(*words: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in words],
        capture_output=True,
        text=True,
        timeout=100,
        env=clean_environment(environment),
    )


@pytest.fixture(scope="module")
def services() -> dict[str, dict[str, Any]]:
    """Of compose.yaml, with variables filled in as Docker does."""
    found: dict[str, dict[str, Any]] = yaml.safe_load(filled(COMPOSE.read_text()))["services"]
    return found


def filled(text: str) -> str:
    def fill(match: re.Match[str]) -> str:
        return GIVEN.get(match["name"]) or match["default"] or ""

    return re.sub(r"(?<!\$)\$\{(?P<name>\w+)(?::-(?P<default>[^}]*)|:\?[^}]*)?\}", fill, text)


@pytest.fixture(scope="module")
def stages() -> dict[str, Stage]:
    return read_stages(DOCKERFILE)


# The files


def test_hadolint_finds_nothing() -> None:
    if not (BIN / "hadolint").exists():
        pytest.skip("not installed: hadolint, whose wheels are for Linux on x86_64")
    outcome = run(BIN / "hadolint", "--no-color", DOCKERFILE)
    assert (outcome.returncode, outcome.stdout) == (0, "")


def test_compose_fits_its_schema() -> None:
    words = (BIN / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", COMPOSE)
    outcome = run(*words)
    assert outcome.returncode == 0, outcome.stdout


@pytest.mark.parametrize("name", ["node", "spark"])
def test_images_run_as_a_user_without_rights(stages: dict[str, Stage], name: str) -> None:
    assert stages[name].last("USER") == "10001:10001"
    assert "PENSTOCK_PEER_SECRET" not in DOCKERFILE.read_text(), "it would stay in the image"


def test_the_wheel_is_made_of_what_the_image_copies(
    stages: dict[str, Stage], tmp_path: Path
) -> None:
    """The engine gets only what .dockerignore lets through."""
    let_through = [
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"
    ]
    copied = [
        word
        for name, rest in stages["wheel"].instructions
        if name == "COPY"
        for word in rest.split()[:-1]
    ]
    assert sorted(copied) == sorted(let_through)
    for word in copied:
        source = ROOT / word
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, tmp_path / word)
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    outcome = run(*pip, "--wheel-dir", tmp_path / "wheels", tmp_path)
    assert outcome.returncode == 0, outcome.stderr
    assert len(list((tmp_path / "wheels").glob("penstock_mq-*.whl"))) == 1


def test_nothing_is_published_beyond_loopback(services: dict[str, dict[str, Any]]) -> None:
    published = [port for one in services.values() for port in one.get("ports", ())]
    assert len(published) >= len(NODES)
    assert [port for port in published if not str(port).startswith("127.0.0.1:")] == []
    for name, one in services.items():
        assert "network_mode" not in one, name
        assert one["cap_drop"] == ["ALL"], name
        assert one["security_opt"] == ["no-new-privileges:true"], name


def test_images_of_others_have_a_version(services: dict[str, dict[str, Any]]) -> None:
    others = {one["image"] for one in services.values() if "build" not in one}
    assert len(others) == 2
    assert [image for image in others if not re.search(r":v?\d+\.\d+\.\d+$", image)] == []


def test_our_commands_in_compose_exist(services: dict[str, dict[str, Any]]) -> None:
    command = services["pipeline"]["command"]
    script = services["demo-setup"]["command"][0]
    lines = [part.split("penstock ")[1] for part in script.splitlines() if "penstock " in part]
    assert len(lines) == 4
    problems = [penstock_problem(words) for words in (command, *map(str.split, lines))]
    assert problems == [""] * 5
    for name in ("spark-master", "spark-worker"):
        (program,) = services[name]["entrypoint"]
        assert (BIN / program).exists(), "it comes with pyspark"


def test_prometheus_and_grafana_find_what_is_mounted(services: dict[str, dict[str, Any]]) -> None:
    scraped = yaml.safe_load((DEPLOY / "compose" / "prometheus.yml").read_text())
    job, of_pipelines = scraped["scrape_configs"]
    port = services["pipeline"]["environment"]["PENSTOCK_PIPELINE_METRICS"].partition(":")[2]
    assert of_pipelines["static_configs"][0]["targets"] == [f"pipeline:{port}"]
    targets = job["static_configs"][0]["targets"]
    assert targets == [f"penstock-{node}:9094" for node in NODES]
    for node in NODES:
        environment = services[f"penstock-{node}"]["environment"]
        assert environment["PENSTOCK_HTTP_HOSTS"] == f"penstock-{node}", "others are refused"
    places = {}
    for name in ("prometheus", "grafana"):
        for volume in services[name]["volumes"]:
            source, place, *_ = volume.split(":")
            places[place] = source
    assert [
        path for path in places.values() if "compose" in path and not (DEPLOY / path).exists()
    ] == []
    (rules,) = scraped["rule_files"]
    assert places[str(Path(rules).parent)] == "./prometheus"
    assert list((DEPLOY / "prometheus").glob(Path(rules).name)), "the alert rules"
    provider = yaml.safe_load((DEPLOY / "compose/grafana/dashboards/penstock.yaml").read_text())
    assert places[provider["providers"][0]["options"]["path"]] == "./grafana"
    given = yaml.safe_load((DEPLOY / "compose/grafana/datasources/prometheus.yaml").read_text())
    (source,) = given["datasources"]
    dashboards = list((DEPLOY / "grafana").glob("*.json"))
    assert dashboards
    for path in dashboards:
        wanted = re.findall(r'"type": "prometheus",\s*"uid": "([^"]+)"', path.read_text())
        assert set(wanted) == {source["uid"]}, path.name


# What they start


class Container:
    """The process of a container, without a container."""

    def __init__(self, image: Stage, environment: dict[str, str], *prefix: str) -> None:
        self.environment = clean_environment(image.environment() | environment)
        self.environment["PATH"] = f"{BIN}{os.pathsep}{os.environ['PATH']}"
        self._health = image.health_check()
        self.process = subprocess.Popen(
            [*prefix, *image.words("ENTRYPOINT"), *image.words("CMD")],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def is_healthy(self) -> bool:
        return self.call(*self._health).returncode == 0

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        """As `docker exec` does."""
        return subprocess.run(
            words, env=self.environment, capture_output=True, text=True, timeout=100
        )

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


@pytest.fixture
def start(stages: dict[str, Stage]) -> Iterator[Callable[..., Container]]:
    """Starts the process of a node's container."""
    started: list[Container] = []

    def make(environment: dict[str, str], *prefix: str) -> Container:
        started.append(Container(stages["node"], environment, *prefix))
        return started[-1]

    yield make
    for one in started:
        one.close()


def on_loopback(value: str, ports: Mapping[str, int]) -> str:
    """An address or a list of them: each container has an own one, a process here only a port."""
    for name, port in ports.items():
        value = value.replace(name, f"127.0.0.1:{port}")
    return value


def test_three_nodes_of_compose_form_a_cluster(
    services: dict[str, dict[str, Any]], start: Callable[..., Container], tmp_path: Path
) -> None:
    """Also runs what sets the demonstration up."""
    with HeldPorts() as held:
        peers = {f"penstock-{node}:9095": held.take(1)[0] for node in NODES}
        kafka = {f"penstock-{node}:9{node}92": held.take(1)[0] for node in NODES}
        nodes = []
        for node in NODES:
            own = {
                "0.0.0.0:9095": peers[f"penstock-{node}:9095"],
                f"0.0.0.0:9{node}92": kafka[f"penstock-{node}:9{node}92"],
                "0.0.0.0:9093": held.take(1)[0],
                "0.0.0.0:9094": held.take(1)[0],
            }
            given = services[f"penstock-{node}"]["environment"]
            places = {**peers, **kafka, **own}
            environment = {name: on_loopback(str(value), places) for name, value in given.items()}
            assert "0.0.0.0" not in "".join(environment.values())
            data = str(tmp_path / f"data-{node}")
            nodes.append(start({**environment, "PENSTOCK_DATA_DIR": data}))
        for one in nodes:
            wait_until("the node is healthy", one.is_healthy)
        waited = nodes[0].call("penstock", "health", "--in-sync", "--wait", "60", "--json")
        assert json.loads(waited.stdout) == {"ok": True, "detail": ""}
        setup = services["demo-setup"]
        client = setup["environment"]["PENSTOCK_BOOTSTRAP"]
        nodes[0].environment["PENSTOCK_BOOTSTRAP"] = on_loopback(client, kafka)
        script = setup["command"][0].replace("/srv/penstock", str(tmp_path))
        for _ in range(2):
            outcome = nodes[0].call(*setup["entrypoint"], script)
            assert outcome.returncode == 0, outcome.stderr
        status = json.loads(nodes[0].call("penstock", "cluster", "status", "--json").stdout)
        found = [(one["node"], one["state"], one["address"]) for one in status["nodes"]]
        addresses = [f"127.0.0.1:{port}" for port in kafka.values()]
        assert found == list(zip(NODES, ["up"] * 3, addresses, strict=True))
        for one in nodes:
            one.process.send_signal(signal.SIGTERM)
        assert [one.process.wait(STOPS_S) for one in nodes] == [0, 0, 0]
        assert not nodes[0].is_healthy()


def test_the_first_process_of_a_container_hears_sigterm_and_leaves_nobody_behind(
    start: Callable[..., Container], tmp_path: Path
) -> None:
    """The kernel gives that process no signal for which it has no handler."""
    unshare = shutil.which("unshare")
    if unshare is None or run(unshare, "--pid", "--fork", "true").returncode:
        pytest.skip("not allowed or not installed: unshare --pid (util-linux, as root)")
    with HeldPorts() as held:
        kafka, grpc, http = (f"127.0.0.1:{port}" for port in held.take(3))
        environment = {"PENSTOCK_DATA_DIR": str(tmp_path / "data")}
        environment |= {"PENSTOCK_KAFKA": kafka, "PENSTOCK_HTTP": http, "PENSTOCK_GRPC": grpc}
        prefix = (unshare, "--pid", "--fork", "--kill-child")
        container = start(environment, *prefix)
        # The process of the other doors starts, too.
        wait_until("the node is healthy", container.is_healthy)
        (first,) = psutil.Process(container.process.pid).children()
        children = first.children(recursive=True)
        assert children
        assert "NSpid:" in (status := Path(f"/proc/{first.pid}/status").read_text())
        assert re.search(r"^NSpid:\s.*\b1$", status, re.M)
        first.send_signal(signal.SIGTERM)
        assert container.process.wait(STOPS_S) == 0
        assert [one for one in children if one.is_running()] == []
