"""`penstock up --nodes`: which nodes it runs, and which settings it can't give to several."""

import socket
from pathlib import Path

import pytest

from penstock.cli.local_cluster import members, run_local_cluster
from penstock.client.child_broker import ChildBroker
from penstock.client.errors import ClientError
from penstock.config import SettingsError, load


def test_ports_rise_by_100_and_each_node_has_its_own_data() -> None:
    first, second, third = members(load({"data_dir": "d"}, {}), 3)
    assert [one.node for one in (first, second, third)] == [1, 2, 3]
    assert [str(one.doors["kafka"]) for one in (first, second)] == [
        "127.0.0.1:9092",
        "127.0.0.1:9192",
    ]
    assert str(third.doors["peer"]) == "127.0.0.1:9295"
    assert third.data_dir == Path("d/node-3")


def test_given_ports_are_those_of_the_first_node() -> None:
    _, second = members(load({"kafka": ":20000", "peer": "localhost:21000"}, {}), 2)
    assert str(second.doors["kafka"]) == "127.0.0.1:20100"
    assert str(second.doors["peer"]) == "localhost:21100"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("node", "1"),
        ("cluster", "0=127.0.0.1:1"),
        ("join", ":1"),
        ("advertise", "here:1"),
        ("advertise_peer", ":1"),
        ("rack", "west"),
    ],
)
def test_what_belongs_to_one_node_is_refused(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=f"Setting {name} from flag .* for one node"):
        members(load({name: value}, {}), 3)


@pytest.mark.parametrize("port", [0, 65_500])
def test_ports_must_have_room(port: int) -> None:
    with pytest.raises(SettingsError, match="room"):
        members(load({"kafka": f":{port}"}, {}), 3)


def test_a_taken_port_of_any_node_leaves_no_directory_behind(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        if port + 200 > 65_535:
            pytest.skip("the port is too high for a cluster")
        settings = load({"data_dir": str(tmp_path / "data"), "peer": f":{port}"}, {})
        with pytest.raises(
            ClientError, match=f"Node 1 can't listen on 127.0.0.1:{port}: .* in use"
        ):
            run_local_cluster(settings, 3)
    assert list(tmp_path.iterdir()) == []


def test_a_node_says_how_it_is_started_again() -> None:
    child = ChildBroker(
        "my data",
        kafka=":1",
        grpc=":4",
        http=":3",
        node=2,
        peer=":2",
        cluster={2: ":2"},
        settings={"num.partitions": "3"},
        environment={"PENSTOCK_PEER_SECRET": "hidden"},
    )
    assert child.command_line == (
        "penstock up --node 2 --kafka :1 --grpc :4 --http :3 --data-dir 'my data' --peer :2 "
        "--cluster 2=:2 --set num.partitions=3"
    )
