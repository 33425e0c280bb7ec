"""Settings: precedence, sources, and one clear sentence for everything that can't be used."""

from pathlib import Path

import pytest

from penstock.config import (
    DEFAULT,
    SETTINGS,
    LogFormat,
    LogLevel,
    Settings,
    SettingsError,
    load,
)
from penstock.model.endpoint import Endpoint, is_wildcard, parse_endpoint


def written(directory: Path, name: str, text: str) -> str:
    path = directory / name
    path.write_text(text)
    return str(path)


def refusal(flags: dict[str, object], environment: dict[str, str] | None = None) -> str:
    with pytest.raises(SettingsError) as caught:
        load(flags, environment or {})
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert sentence.endswith(".")
    return sentence


def test_nothing_given_is_a_node_on_loopback() -> None:
    settings = load({}, {})
    assert settings == Settings()
    assert settings.kafka == Endpoint("127.0.0.1", 9092)
    assert settings.peer == Endpoint("127.0.0.1", 9095)
    assert settings.data_dir == Path("penstock-data")
    assert settings.source("kafka") == DEFAULT
    assert not settings.is_explicit("kafka")


def test_flag_beats_environment_beats_file_beats_default(tmp_path: Path) -> None:
    file = written(tmp_path, "node.toml", 'kafka = "f:1"\nhttp = "f:2"\ngrpc = "f:3"\n')
    settings = load(
        {"config": file, "kafka": "a:1"}, {"PENSTOCK_KAFKA": "e:1", "PENSTOCK_HTTP": "e:2"}
    )
    assert [str(one) for one in (settings.kafka, settings.http, settings.grpc)] == [
        "a:1",
        "e:2",
        "f:3",
    ]
    assert settings.source("kafka") == "flag --kafka"
    assert settings.source("http") == "environment PENSTOCK_HTTP"
    assert settings.source("grpc") == f"file {file}"
    assert settings.source("peer") == DEFAULT


def test_flags_not_given_and_empty_variables_count_for_nothing() -> None:
    settings = load({"kafka": None, "broker": ()}, {"PENSTOCK_KAFKA": "", "PENSTOCK_SET": ""})
    assert settings == Settings()


def test_the_node_number_alone_moves_the_default_ports() -> None:
    settings = load({"node": "5"}, {})
    assert settings.node == 5
    assert settings.kafka == Endpoint("127.0.0.1", 9592)
    assert settings.peer.port == 9595


def test_the_last_node_number_with_default_ports_still_has_valid_ones() -> None:
    assert load({"node": "564"}, {}).peer.port == 65_495
    assert "--kafka" in refusal({"node": "565"})


def test_a_large_node_number_works_once_the_kafka_address_is_given() -> None:
    settings = load({"node": str(2**31 - 1), "kafka": "127.0.0.1:0"}, {})
    assert settings.node == 2**31 - 1
    assert settings.peer.port == 0


@pytest.mark.parametrize("node", ["-1", "x", "1.5", str(2**31), "", " ", "٣"])
def test_bad_node_numbers_are_refused(node: str) -> None:
    assert "--node" in refusal({"node": node})


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("localhost:9092", "localhost", 9092),
        ("127.0.0.1:0", "127.0.0.1", 0),
        (":0", "127.0.0.1", 0),
        ("[::1]:9092", "::1", 9092),
        ("[fe80::1%eth0]:1", "fe80::1%eth0", 1),
        ("kafka-0.kafka.svc.cluster.local:65535", "kafka-0.kafka.svc.cluster.local", 65_535),
        ("my_broker:1", "my_broker", 1),
    ],
)
def test_addresses(text: str, host: str, port: int) -> None:
    assert parse_endpoint(text) == Endpoint(host, port)


@pytest.mark.parametrize(
    "text",
    [
        "9092",
        "host",
        "host:",
        "host:x",
        "host:-1",
        "host:65536",
        "::1:9092",
        "[::1]",
        "[zz]:1",
        "[1.2.3.4]:1",
        "ho st:1",
        "host:1:2",
        "http://host:1",
        "host:99999999999",
        "-x:1",
    ],
)
def test_bad_addresses_are_refused_by_setting_source_and_value(text: str) -> None:
    sentence = refusal({}, {"PENSTOCK_KAFKA": text})
    assert sentence.startswith(f"Setting kafka from environment PENSTOCK_KAFKA is {text!r}, but ")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "0", "0:0::0", "::ffff:0.0.0.0", "000.0.0.0"])
def test_wildcards_are_known(host: str) -> None:
    assert is_wildcard(host)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "10.0.0.0", "zero"])
def test_other_hosts_are_no_wildcards(host: str) -> None:
    assert not is_wildcard(host)


def test_a_wildcard_needs_an_advertised_address() -> None:
    assert "--advertise" in refusal({"kafka": "0.0.0.0:9092"})
    assert "--advertise" in refusal({"kafka": "[::]:9092"})
    settings = load({"kafka": "0.0.0.0:0", "advertise": "broker.example:9092"}, {})
    assert settings.advertised(Endpoint("0.0.0.0", 40_000)) == Endpoint("broker.example", 9092)


def test_the_advertised_address_is_the_bound_one_unless_given() -> None:
    bound = Endpoint("127.0.0.1", 40_000)
    assert load({}, {}).advertised(bound) == bound
    # Port 0 stands for the port that was picked.
    assert load({"advertise": "here:0"}, {}).advertised(bound) == Endpoint("here", 40_000)


def test_a_wildcard_is_no_address_for_clients() -> None:
    assert "wildcard" in refusal({"kafka": "0.0.0.0:1", "advertise": "0.0.0.0:1"})


def test_two_doors_can_not_share_an_address() -> None:
    sentence = refusal({"kafka": "h:1", "http": "h:1"})
    assert "http from flag --http" in sentence
    assert "kafka from flag --kafka" in sentence
    # The default of a door that nobody asked for is not a conflict.
    assert load({"kafka": "127.0.0.1:9093"}, {}).kafka.port == 9093
    assert load({"kafka": "h:0", "http": "h:0"}, {}).http.port == 0


@pytest.mark.parametrize(
    ("kafka", "first"),
    [("h:19092", 19092), ("127.0.0.1:0", 0), ("h:65535", 0), (None, 9092)],
)
def test_other_ports_keep_their_distance_to_the_kafka_port(kafka: str | None, first: int) -> None:
    doors = load({"kafka": kafka, "advertise": "h:1"}, {}).other_doors()
    distances = {"grpc": 1, "http": 2}
    assert doors == {
        door: Endpoint("127.0.0.1", first and first + distance)
        for door, distance in distances.items()
    }


@pytest.mark.parametrize("door", ["grpc", "http"])
def test_other_doors_can_be_turned_off(tmp_path: Path, door: str) -> None:
    assert getattr(load({door: "off"}, {}), door) is None
    assert door not in load({door: "off"}, {}).other_doors()
    # YAML reads the word as false.
    file = written(tmp_path, "node.yaml", f"{door}: off\n")
    assert getattr(load({"config": file}, {}), door) is None
    assert (door, "off", f"flag --{door}") in load({door: "off"}, {}).effective()
    assert "it must be HOST:PORT" in refusal({door: "on"})


def test_names_for_http_clients(tmp_path: Path) -> None:
    settings = load({"http_hosts": "Broker-1.example.com., queue"}, {})
    assert settings.http_hosts == ("broker-1.example.com", "queue")
    file = written(tmp_path, "node.toml", 'http-hosts = ["a", "b"]\n')
    assert load({"config": file}, {}).http_hosts == ("a", "b")
    for bad in ("a:9094", "http://a", "a,,b", "*"):
        assert "http_hosts" in refusal({"http_hosts": bad})


def test_log_settings() -> None:
    settings = load({"log_format": "JSON"}, {"PENSTOCK_LOG_LEVEL": "debug"})
    assert (settings.log_format, settings.log_level) == (LogFormat.JSON, LogLevel.DEBUG)
    assert "auto, text, json" in refusal({"log_format": "xml"})


def test_metrics_are_on_unless_they_are_turned_off() -> None:
    assert load({}, {}).metrics
    assert not load({}, {"PENSTOCK_METRICS": "OFF"}).metrics
    assert ("metrics", "off", "flag --metrics") in load({"metrics": "off"}, {}).effective()
    assert "it must be on or off" in refusal({"metrics": "maybe"})


def test_the_time_between_scrubs_is_a_number_of_hours() -> None:
    assert load({}, {}).scrub_hours == 168
    assert load({}, {"PENSTOCK_SCRUB_HOURS": "0"}).scrub_hours == 0
    for bad in ("-1", "1.5", "often", True, 9_000):
        assert "it must be a whole number from 0 to 8784" in refusal({"scrub_hours": bad})


def test_broker_settings_merge_key_by_key(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        "node.toml",
        '[broker]\nnum.partitions = 3\n"log.retention.ms" = 5\nauto.create.topics.enable = false\n',
    )
    settings = load(
        {"config": file, "broker": ("num.partitions=8",)},
        {"PENSTOCK_SET": "log.cleanup.policy=compact,delete,log.retention.ms=7"},
    )
    assert settings.broker == {
        "num.partitions": "8",
        "log.retention.ms": "7",
        "log.cleanup.policy": "compact,delete",
        "auto.create.topics.enable": "false",
    }
    assert settings.source("broker.num.partitions") == "flag --set"
    assert settings.source("broker.log.retention.ms") == "environment PENSTOCK_SET"
    assert settings.source("broker.auto.create.topics.enable") == f"file {file}"


def test_a_broker_setting_may_be_empty_and_may_hold_an_equals_sign() -> None:
    assert load({"broker": ("a=", "b=c=d")}, {}).broker == {"a": "", "b": "c=d"}


@pytest.mark.parametrize("pair", ["num.partitions", "=3", "9x=1", "a b=1"])
def test_bad_broker_settings_are_refused(pair: str) -> None:
    assert "NAME=VALUE" in refusal({"broker": (pair,)})


def test_yaml_files_work_alike(tmp_path: Path) -> None:
    text = (
        "data-dir: /var/lib/penstock\nnode: 7\n"
        "broker:\n  num.partitions: 3\n  log.cleanup.policy: [compact, delete]\n"
    )
    settings = load({}, {"PENSTOCK_CONFIG": written(tmp_path, "node.yaml", text)})
    assert settings.data_dir == Path("/var/lib/penstock")
    assert settings.node == 7
    assert settings.broker["log.cleanup.policy"] == "compact,delete"


@pytest.mark.parametrize("name", ["empty.toml", "empty.yml"])
def test_an_empty_file_changes_nothing(tmp_path: Path, name: str) -> None:
    assert load({"config": written(tmp_path, name, "")}, {}).kafka == Settings().kafka


def test_an_unknown_key_is_refused_with_the_nearest_known_one(tmp_path: Path) -> None:
    file = written(tmp_path, "node.toml", 'kafak = "h:1"\n')
    sentence = refusal({"config": file})
    assert "'kafak'" in sentence
    assert "'kafka'" in sentence
    assert file in sentence


def test_a_key_that_is_nowhere_near_gets_the_list(tmp_path: Path) -> None:
    sentence = refusal({"config": written(tmp_path, "node.toml", "zzz = 1\n")})
    assert "data_dir" in sentence


def test_a_key_given_in_both_spellings_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path, "node.toml", 'data-dir = "a"\ndata_dir = "b"\n')
    assert "data_dir twice" in refusal({"config": file})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("bad.toml", "kafka = "),
        ("bad.yaml", "kafka: [1"),
        ("list.yaml", "- 1\n- 2\n"),
        ("node.toml", "node = true\n"),
        ("node.toml", "kafka = 9092\n"),
        ("node.toml", "broker = 3\n"),
        ("node.toml", "[broker]\na = 2026-01-01\n"),
        ("node.yaml", "broker:\n  1: 2\n"),
    ],
)
def test_files_that_make_no_sense_are_refused(tmp_path: Path, name: str, text: str) -> None:
    file = written(tmp_path, name, text)
    assert file in refusal({"config": file})


def test_files_that_can_not_be_read_are_refused(tmp_path: Path) -> None:
    assert "no such file" in refusal({"config": str(tmp_path / "none.toml")})
    assert "is a directory" in refusal({"config": str(_directory(tmp_path, "d.toml"))})
    assert ".toml, .yaml or .yml" in refusal({"config": "node.ini"})
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")
    assert "can't be parsed" in refusal({"config": str(binary)})


def _directory(parent: Path, name: str) -> Path:
    made = parent / name
    made.mkdir()
    return made


def test_the_tilde_stands_for_home_and_nothing_is_no_directory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    assert load({}, {"PENSTOCK_DATA_DIR": "~/data"}).data_dir == Path("/home/someone/data")
    assert "--data-dir" in refusal({"data_dir": " "})
    assert "null" in refusal({"data_dir": "a\0b"})


def test_effective_settings_are_listed_with_their_sources() -> None:
    rows = load({"broker": ("num.partitions=3",)}, {"PENSTOCK_NODE": "2"}).effective()
    assert ("node", "2", "environment PENSTOCK_NODE") in rows
    assert ("kafka", "127.0.0.1:9292", DEFAULT) in rows
    assert ("broker.num.partitions", "3", "flag --set") in rows
    assert len(rows) == len(SETTINGS)


def test_the_table_and_the_typed_settings_have_the_same_names() -> None:
    fields = set(Settings.__dataclass_fields__) - {"sources"}
    assert fields == {setting.name for setting in SETTINGS}


def test_the_defaults_in_the_table_are_the_real_ones() -> None:
    defaults = {name: value for name, value, _ in Settings().effective()}
    for setting in SETTINGS:
        assert setting.default == defaults.get(setting.name, ""), setting.name
