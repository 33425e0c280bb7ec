"""Proves that the Helm chart renders to objects that Kubernetes accepts, and that fit a node.

`helm lint` and `helm template` run as they are. Kubernetes' own schemas check every object. What a
pod gets as environment is read as a node reads it. No Kubernetes runs here.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

import penstock
from penstock import config
from penstock.frontdoor.http.app import API_ROUTES
from penstock.server import check_settings
from tests.deploy.dockerfile import read_stages
from tests.documents import ROOT

CHART = ROOT / "deploy" / "helm" / "penstock"
HELM = Path(sys.executable).with_name("helm")
SECRET = ("--set", "peerSecret.value=open sesame")
KUBERNETES = ("1.28", "1.31", "1.34")
OBJECTS = {
    ("NetworkPolicy", "penstock"),
    ("PodDisruptionBudget", "penstock"),
    ("Secret", "penstock"),
    ("Service", "penstock"),
    ("Service", "penstock-nodes"),
    ("StatefulSet", "penstock"),
}
# Every value that changes what is rendered.
EVERYTHING = {
    "nodes": 5,
    "image": {
        "repository": "registry.example/penstock",
        "tag": "2",
        "pullSecrets": [{"name": "r"}],
    },
    "peerSecret": {"existingSecret": "ours", "key": "text"},
    "settings": {
        "num.partitions": 3,
        "log.retention.bytes": 1_000_000_000_000,
        "auto.create.topics.enable": False,
        "log.cleanup.policy": "compact,delete",
    },
    "extraEnv": [{"name": "PENSTOCK_DISK_TIMEOUT_MS", "value": "5000"}],
    "storage": {"className": "fast", "size": "1Ti"},
    "networkPolicy": {"clients": [{"namespaceSelector": {"matchLabels": {"team": "orders"}}}]},
    "podAnnotations": {"owner": "us"},
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "broker", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
}

pytestmark = pytest.mark.skipif(
    not HELM.exists(), reason="not installed: helm, whose wheels are for Linux on x86_64"
)


def helm(*words: str, given: object = None) -> subprocess.CompletedProcess[str]:
    """With values on standard input, if any are given."""
    values = ("--values", "-") if given is not None else ()
    return subprocess.run(
        [str(HELM), *words, *values],
        input=json.dumps(given) if given is not None else "",
        capture_output=True,
        text=True,
        timeout=60,
    )


def rendered(*words: str, given: object = None) -> dict[tuple[str, str], dict[str, Any]]:
    outcome = helm("template", "penstock", str(CHART), "--namespace", "mq", *words, given=given)
    assert outcome.returncode == 0, outcome.stderr
    objects = [one for one in yaml.safe_load_all(outcome.stdout) if one]
    return {(one["kind"], one["metadata"]["name"]): one for one in objects}


@pytest.fixture(scope="module")
def plain() -> dict[tuple[str, str], dict[str, Any]]:
    return rendered(*SECRET)


def pod_of(objects: dict[tuple[str, str], dict[str, Any]]) -> dict[str, Any]:
    pod: dict[str, Any] = objects["StatefulSet", "penstock"]["spec"]["template"]["spec"]
    return pod


def environment_of(objects: dict[tuple[str, str], dict[str, Any]], node: int) -> dict[str, str]:
    """As the kubelet makes it for one pod."""
    (container,) = pod_of(objects)["containers"]
    known = {"metadata.name": f"penstock-{node}"}
    known["metadata.labels['apps.kubernetes.io/pod-index']"] = str(node)
    made: dict[str, str] = {}
    for one in container["env"]:
        source = one.get("valueFrom", {})
        if "secretKeyRef" in source:
            made[one["name"]] = "open sesame"
        elif "fieldRef" in source:
            made[one["name"]] = known[source["fieldRef"]["fieldPath"]]
        else:
            made[one["name"]] = re.sub(r"\$\((\w+)\)", lambda match: made[match[1]], one["value"])
    return made


def test_helm_finds_nothing_wrong() -> None:
    outcome = helm("lint", "--strict", str(CHART), *SECRET)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("given", [{}, EVERYTHING], ids=["plain", "everything"])
def test_kubernetes_takes_every_object(version: str, given: dict[str, Any]) -> None:
    objects = rendered(*(() if given else SECRET), "--kube-version", version, given=given)
    assert objects.keys() == (OBJECTS - {("Secret", "penstock")} if given else OBJECTS)
    for one in objects.values():
        kubernetes_validate.validate(one, version, strict=True)


def test_the_chart_is_for_this_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == penstock.__version__


@pytest.mark.parametrize("node", range(3))
def test_a_pod_has_the_settings_of_its_node(
    plain: dict[tuple[str, str], dict[str, Any]], node: int
) -> None:
    environment = environment_of(plain, node)
    known = {setting.environment for setting in config.SETTINGS} | {"POD_NAME"}
    assert environment.keys() <= known
    settings = config.load({}, environment)
    domain = "penstock-nodes.mq.svc.cluster.local"
    assert settings.node == node
    assert str(settings.advertised(settings.kafka)) == f"penstock-{node}.{domain}:9092"
    assert str(settings.advertised_peer(settings.peer)) == f"penstock-{node}.{domain}:9095"
    assert sorted(settings.cluster) == [0, 1, 2]
    assert f"penstock-{node}.{domain}" in settings.http_hosts
    assert "penstock.mq.svc" in settings.http_hosts


def test_every_value_arrives() -> None:
    objects = rendered(given=EVERYTHING)
    settings = config.load({}, environment_of(objects, 4))
    check_settings(settings)
    assert dict(settings.broker) == {
        "num.partitions": "3",
        "log.retention.bytes": "1000000000000",
        "auto.create.topics.enable": "false",
        "log.cleanup.policy": "compact,delete",
    }
    assert (settings.node, len(settings.cluster), settings.disk_timeout_ms) == (4, 5, 5000)
    set_ = objects["StatefulSet", "penstock"]["spec"]
    assert set_["replicas"] == 5
    assert set_["volumeClaimTemplates"][0]["spec"]["storageClassName"] == "fast"
    assert pod_of(objects)["containers"][0]["image"] == "registry.example/penstock:2"
    clients = objects["NetworkPolicy", "penstock"]["spec"]["ingress"][1]["from"]
    assert clients == [{"podSelector": {}}, *EVERYTHING["networkPolicy"]["clients"]]  # type: ignore[index]


def test_no_door_leaves_the_cluster(plain: dict[tuple[str, str], dict[str, Any]]) -> None:
    types = [
        one["spec"].get("type", "ClusterIP")
        for (kind, _), one in plain.items()
        if kind == "Service"
    ]
    assert types == ["ClusterIP"] * 2
    pod = pod_of(plain)
    assert "hostNetwork" not in pod
    assert pod["automountServiceAccountToken"] is False
    (container,) = pod["containers"]
    assert [port for port in container["ports"] if "hostPort" in port] == []
    peers, clients = plain["NetworkPolicy", "penstock"]["spec"]["ingress"]
    assert [one["port"] for one in peers["ports"]] == ["peer"]
    assert [one["port"] for one in clients["ports"]] == ["kafka", "grpc", "http"]


def test_a_restart_waits_until_a_node_is_in_sync(
    plain: dict[tuple[str, str], dict[str, Any]],
) -> None:
    pod, spec = pod_of(plain), plain["StatefulSet", "penstock"]["spec"]
    (container,) = pod["containers"]
    assert container["readinessProbe"]["httpGet"] == {"path": "/health/in-sync", "port": "http"}
    assert "/health/in-sync" in {route.path for route in API_ROUTES}
    assert spec["updateStrategy"] == {"type": "RollingUpdate"}
    # Otherwise the first node would wait for others that are started only when it is ready.
    assert spec["podManagementPolicy"] == "Parallel"
    assert plain["Service", "penstock-nodes"]["spec"]["publishNotReadyAddresses"] is True
    budget = plain["PodDisruptionBudget", "penstock"]["spec"]
    assert budget["maxUnavailable"] == 1
    labels = spec["template"]["metadata"]["labels"].items()
    for selector in (budget["selector"], spec["selector"]):
        assert selector["matchLabels"].items() <= labels


def test_the_pod_fits_the_image(plain: dict[tuple[str, str], dict[str, Any]]) -> None:
    image = read_stages(ROOT / "deploy" / "Dockerfile")["node"]
    pod = pod_of(plain)
    (container,) = pod["containers"]
    context = pod["securityContext"]
    assert image.last("USER") == f"{context['runAsUser']}:{context['runAsGroup']}"
    assert "command" not in container, "the image's entry point runs"
    assert container["args"] == image.words("CMD")
    mounts = {one["mountPath"] for one in container["volumeMounts"]}
    assert image.environment()["PENSTOCK_DATA_DIR"] in mounts
    exposed = {str(one["containerPort"]) for one in container["ports"]}
    assert exposed == set(image.last("EXPOSE").split())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "Give all nodes one secret"),
        ({"peerSecret": {"value": "x"}, "nodes": 0}, "nodes"),
        ({"peerSecret": {"value": "x"}, "noodles": 3}, "noodles"),
        ({"peerSecret": {"value": "x"}, "storage": {"size": "big"}}, "size"),
    ],
)
def test_values_that_cannot_be_used_are_refused(given: dict[str, Any], said: str) -> None:
    outcome = helm("template", "penstock", str(CHART), given=given)
    assert outcome.returncode != 0
    assert said in outcome.stderr
