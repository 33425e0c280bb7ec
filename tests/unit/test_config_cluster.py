"""Settings of a cluster's node: its members, its peer door, its rack and the shared secret."""

from pathlib import Path

import pytest

from penstock.config import HIDDEN, Settings, SettingsError, load
from penstock.model.endpoint import Endpoint, is_loopback
from penstock.model.ids import BrokerId

THREE = "1=127.0.0.1:9195,2=127.0.0.1:9295,3=localhost:9395"


def refusal(flags: dict[str, object], environment: dict[str, str] | None = None) -> str:
    with pytest.raises(SettingsError) as caught:
        load(flags, environment or {})
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert sentence.endswith(".")
    return sentence


def test_a_node_without_cluster_stands_alone_and_opens_no_peer_door() -> None:
    settings = load({}, {})
    assert settings.cluster == {}
    assert (settings.join, settings.rack, settings.peer_secret) == (None, None, None)
    assert not settings.opens_peer_door()
    assert load({"peer": ":0"}, {}).opens_peer_door()


def test_members_are_listed_by_number_and_a_node_listens_where_it_is_listed() -> None:
    settings = load({"cluster": " 3=localhost:9395, 1=:9195,2=127.0.0.1:9295", "node": "2"}, {})
    assert list(settings.cluster) == [1, 2, 3]
    assert settings.cluster[BrokerId(1)] == Endpoint("127.0.0.1", 9195)
    assert settings.peer == Endpoint("127.0.0.1", 9295)
    assert settings.source("peer") == "flag --cluster"
    assert settings.opens_peer_door()


def test_a_node_may_listen_elsewhere_than_where_others_reach_it() -> None:
    settings = load({"cluster": THREE, "node": "2", "peer": ":5000"}, {})
    assert settings.peer == Endpoint("127.0.0.1", 5000)
    assert settings.advertised_peer(settings.peer) == Endpoint("127.0.0.1", 9295)


def test_the_address_that_nodes_are_told() -> None:
    bound = Endpoint("127.0.0.1", 40_000)
    assert load({"join": ":1"}, {}).advertised_peer(bound) == bound
    told = load({"join": ":1", "advertise_peer": "localhost:0"}, {})
    assert told.advertised_peer(bound) == Endpoint("localhost", 40_000)
    both = load({"cluster": THREE, "node": "1", "advertise_peer": ":7"}, {})
    assert both.advertised_peer(bound) == Endpoint("127.0.0.1", 7)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("node.toml", "node = 2\n[cluster]\n1 = '127.0.0.1:1'\n2 = '127.0.0.1:2'\n"),
        ("node.yaml", "node: 2\ncluster:\n  1: 127.0.0.1:1\n  2: 127.0.0.1:2\n"),
        ("node.yml", "node: 2\ncluster: 1=127.0.0.1:1,2=127.0.0.1:2\n"),
    ],
)
def test_a_file_lists_members_as_a_table_or_as_text(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    settings = load({"config": str(tmp_path / name)}, {})
    assert settings.cluster == {1: Endpoint("127.0.0.1", 1), 2: Endpoint("127.0.0.1", 2)}


def test_a_flag_replaces_the_whole_list_of_a_variable() -> None:
    settings = load({"cluster": "7=:1", "node": "7"}, {"PENSTOCK_CLUSTER": THREE})
    assert list(settings.cluster) == [7]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("127.0.0.1:9195", "NODE=HOST:PORT"),
        ("1=127.0.0.1:9195,", "NODE=HOST:PORT"),
        ("x=127.0.0.1:9195", "whole number"),
        ("1=nowhere", "HOST:PORT"),
        ("1=:9195,1=:9295", "node 1 twice"),
        ("1=:9195,2=:9195", "two nodes the address 127.0.0.1:9195"),
        ("1=:0", "port 0"),
        ("1=0.0.0.0:9195", "wildcard"),
    ],
)
def test_bad_lists_are_refused(given: str, said: str) -> None:
    assert said in refusal({"cluster": given, "node": "1"})


def test_a_node_must_be_listed_itself() -> None:
    sentence = refusal({"cluster": THREE})
    assert "lists nodes 1, 2, 3" in sentence
    assert "node 0" in sentence
    assert "--node" in sentence


def test_a_node_is_listed_or_joins_but_not_both() -> None:
    sentence = refusal({"cluster": THREE, "node": "1"}, {"PENSTOCK_JOIN": ":9195"})
    assert "join from environment PENSTOCK_JOIN" in sentence
    assert "cluster from flag --cluster" in sentence


def test_joining_needs_a_complete_address() -> None:
    assert load({"join": "localhost:9195", "node": "4"}, {}).join == Endpoint("localhost", 9195)
    assert "port 0" in refusal({"join": "127.0.0.1:0"})
    assert "wildcard" in refusal({"join": "0.0.0.0:9195"})


def test_a_peer_door_on_every_interface_needs_an_address_for_others() -> None:
    secret = {"PENSTOCK_PEER_SECRET": "s"}
    assert "--advertise-peer" in refusal({"peer": "0.0.0.0:9095"}, secret)
    told = load({"peer": "0.0.0.0:0", "advertise_peer": "a.example:9095"}, secret)
    assert told.advertised_peer(Endpoint("0.0.0.0", 5)) == Endpoint("a.example", 9095)
    listed = {"cluster": "1=a.example:9195,2=b.example:9195", "node": "1", "peer": "[::]:9195"}
    assert load(listed, secret).advertised_peer(Endpoint("::", 9195)).host == "a.example"


@pytest.mark.parametrize(
    "flags",
    [
        {"peer": "10.0.0.1:9095"},
        {"join": "node-1.example:9095"},
        {"cluster": "1=:9195,2=10.0.0.2:9195", "node": "1"},
        {"peer": ":9095", "advertise_peer": "node-1.example:9095"},
    ],
)
def test_beyond_loopback_nodes_need_a_secret(flags: dict[str, object]) -> None:
    assert "PENSTOCK_PEER_SECRET" in refusal(flags)
    assert load(flags, {"PENSTOCK_PEER_SECRET": "hush"}).peer_secret == "hush"


def test_the_secret_is_never_shown(tmp_path: Path) -> None:
    settings = load({"peer_secret": "hush-hush"}, {})
    shown = {name: value for name, value, _ in settings.effective()}
    assert shown["peer_secret"] == HIDDEN
    assert "hush-hush" not in repr(settings)
    file = tmp_path / "node.toml"
    file.write_text("peer_secret = 123456\n")
    assert "123456" not in refusal({"config": str(file)})
    assert "hush" not in refusal({"peer_secret": "hush\0"})


def test_the_members_are_shown_as_they_are_given() -> None:
    rows = load({"cluster": THREE, "node": "1"}, {}).effective()
    assert ("cluster", THREE, "flag --cluster") in rows
    assert ("peer", "127.0.0.1:9195", "flag --cluster") in rows


def test_the_rack_is_the_same_as_kafkas_broker_rack() -> None:
    ours = load({"rack": "west"}, {})
    assert ours.broker == {"broker.rack": "west"}
    kafkas = load({"broker": ("broker.rack=west",)}, {})
    assert kafkas.rack == "west"
    assert kafkas.source("rack") == "flag --set"
    assert load({"rack": "west", "broker": ("broker.rack=west",)}, {}).rack == "west"
    assert "'east'" in refusal({"rack": "west", "broker": ("broker.rack=east",)})
    assert load({"broker": ("broker.rack=",)}, {}).rack is None


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "localhost", "LOCALHOST.", "::1"])
def test_loopback_is_known(host: str) -> None:
    assert is_loopback(host)
    assert is_loopback("::ffff:127.0.0.1")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org", "::ffff:10.0.0.1"])
def test_other_hosts_are_beyond_loopback(host: str) -> None:
    assert not is_loopback(host)


def test_settings_made_in_code_hold_no_list() -> None:
    assert Settings().cluster == {}
