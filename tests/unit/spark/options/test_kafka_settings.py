"""Proves what becomes of settings with the Java client's names: honoured, refused or noted."""

from typing import Any

import pytest

from penstock.client.wire.settings import WireSettings
from penstock.spark.options.errors import OptionError
from penstock.spark.options.java_names import JAVA_NAMES
from penstock.spark.options.kafka_settings import READING, WRITING, Use
from tests.unit.spark.options.samples import read_with, write_with

DEFAULTS = WireSettings(bootstrap="localhost:9092")
# Twice as much still fits into milliseconds of 32 bits.
FOR_EVER_S = 1_000_000.0


def test_what_is_not_set_keeps_the_wire_clients_defaults() -> None:
    assert read_with({}).wire == DEFAULTS
    assert write_with({}).wire == DEFAULTS


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        ("kafka.client.id", "reports", "client_id", "reports"),
        ("kafka.client.id", "", "client_id", DEFAULTS.client_id),
        ("kafka.request.timeout.ms", "1500", "request_timeout_s", 1.5),
        ("kafka.request.timeout.ms", "0", "request_timeout_s", 0.001),
        ("kafka.request.timeout.ms", str(2**31 - 1), "request_timeout_s", FOR_EVER_S),
        ("kafka.request.timeout.ms", str(2**63 - 1), "request_timeout_s", FOR_EVER_S),
        ("kafka.metadata.max.age.ms", "0", "metadata_ttl_s", 0.0),
        ("kafka.receive.buffer.bytes", "65536", "receive_buffer_bytes", 65536),
        ("kafka.receive.buffer.bytes", "-1", "receive_buffer_bytes", DEFAULTS.receive_buffer_bytes),
        ("kafka.send.buffer.bytes", "65536", "send_buffer_bytes", 65536),
    ],
)
def test_settings_of_both_directions(name: str, text: str, field: str, value: object) -> None:
    for options in (read_with({name: text}), write_with({name: text})):
        assert getattr(options.wire, field) == value
        assert options.notes == ()


@pytest.mark.parametrize(
    ("options", "field", "value"),
    [
        ({"kafka.fetch.max.bytes": "1000"}, "fetch_bytes_max", 1000),
        ({"kafka.max.partition.fetch.bytes": "0"}, "fetch_bytes_max", 1),
        (
            {"kafka.fetch.max.bytes": "9000", "kafka.max.partition.fetch.bytes": "500"},
            "fetch_bytes_max",
            500,
        ),
        ({"kafka.fetch.max.wait.ms": "20"}, "fetch_wait_ms", 20),
        ({"kafka.fetch.max.wait.ms": str(2**31 - 1)}, "fetch_wait_ms", FOR_EVER_S * 1000),
        ({"kafkaConsumer.pollTimeoutMs": str(2**63 - 1)}, "retry_timeout_s", FOR_EVER_S),
        ({"kafka.isolation.level": "read_committed"}, "isolation_read_committed", True),
        ({"kafka.isolation.level": "READ_UNCOMMITTED"}, "isolation_read_committed", False),
        ({"kafka.default.api.timeout.ms": "9000"}, "retry_timeout_s", 9.0),
        ({"kafkaConsumer.pollTimeoutMs": "7000"}, "retry_timeout_s", 7.0),
        (
            {"kafka.default.api.timeout.ms": "9000", "kafkaConsumer.pollTimeoutMs": "7000"},
            "retry_timeout_s",
            9.0,
        ),
    ],
)
def test_settings_of_a_read(options: dict[str, str], field: str, value: object) -> None:
    read = read_with(options)
    assert getattr(read.wire, field) == value
    assert read.notes == ()


@pytest.mark.parametrize("with_options", [read_with, write_with])
def test_how_long_brokers_may_be_away_is_an_option(with_options: Any) -> None:
    plain = with_options({}).wire
    assert (plain.retry_timeout_s, plain.first_contact_timeout_s) == (600, 5)
    wire = with_options({"maxBrokerOutage": "30m", "firstContactTimeout": "20s"}).wire
    assert (wire.retry_timeout_s, wire.first_contact_timeout_s) == (1800, 20)
    # It says more than the settings of the Java client, which jobs bring along.
    java = {"kafka.delivery.timeout.ms": "9000", "kafka.default.api.timeout.ms": "9000"}
    assert with_options(java | {"maxBrokerOutage": "30m"}).wire.retry_timeout_s == 1800
    with pytest.raises(OptionError, match="maxBrokerOutage must be a time such as"):
        with_options({"maxBrokerOutage": "long"})


def test_a_write_gives_up_after_the_delivery_timeout() -> None:
    assert write_with({"kafka.delivery.timeout.ms": "9000"}).wire.retry_timeout_s == 9.0


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("kafka.isolation.level", "serializable"),
        ("kafka.request.timeout.ms", "30s"),
        ("kafka.fetch.max.bytes", "-1"),
        ("kafka.receive.buffer.bytes", "-2"),
    ],
)
def test_wrong_values_are_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(OptionError, match=rf"^The option {name} must be .*, not \"{text}\"\.$"):
        read_with({name: text})


def test_a_name_that_no_request_can_carry_is_refused() -> None:
    assert read_with({"kafka.client.id": "x" * 32767}).wire.client_id == "x" * 32767
    with pytest.raises(OptionError, match=r"kafka\.client\.id may have at most 32767 bytes"):
        read_with({"kafka.client.id": "ü" * 16384})


@pytest.mark.parametrize(
    ("text", "bootstrap"),
    [
        (" a:1 , b:2,", "a:1,b:2"),
        ("[::1]:9092", "[::1]:9092"),
        ("broker.example.org:9092", "broker.example.org:9092"),
    ],
)
def test_addresses(text: str, bootstrap: str) -> None:
    assert read_with({"kafka.bootstrap.servers": text}).wire.bootstrap == bootstrap


@pytest.mark.parametrize("text", ["localhost", "a:1,b", "a:99999", ",", "http://a:1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match=r"^The option kafka\.bootstrap\.servers holds .*\.$"):
        read_with({"kafka.bootstrap.servers": text})


@pytest.mark.parametrize(
    "name",
    [
        "sasl.mechanism",
        "sasl.jaas.config",
        "ssl.truststore.location",
        "ssl.ca.location",
        "security.providers",
        "security.protocol",
    ],
)
def test_security_that_cant_be_given_is_refused_without_showing_the_secret(name: str) -> None:
    for options in (read_with, write_with):
        with pytest.raises(OptionError, match=f"kafka.{name} asks for security") as refusal:
            options({f"kafka.{name}": "SASL_SSL"})
        assert "SASL_SSL" not in str(refusal.value)


def test_no_security_may_be_asked_for() -> None:
    assert read_with({"kafka.security.protocol": "plaintext"}).notes == ()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("auto.offset.reset", "the option startingOffsets says where a query starts"),
        ("key.deserializer", "keys arrive as bytes"),
        ("value.deserializer", "values arrive as bytes"),
        ("enable.auto.commit", "Spark keeps the offsets"),
        ("interceptor.classes", "an interceptor is Java code"),
    ],
)
def test_what_spark_forbids_on_a_read(name: str, reason: str) -> None:
    with pytest.raises(OptionError, match=rf"^The setting kafka\.{name} can't be set: {reason}"):
        read_with({f"kafka.{name}": "x"})


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("key.serializer", "keys are written as the bytes they are"),
        ("value.serializer", "values are written as the bytes they are"),
        ("interceptor.classes", "an interceptor is Java code"),
        ("transactional.id", "writing in transactions is not supported yet"),
    ],
)
def test_what_is_forbidden_on_a_write(name: str, reason: str) -> None:
    with pytest.raises(OptionError, match=rf"^The setting kafka\.{name} can't be set: {reason}"):
        write_with({f"kafka.{name}": "x"})


@pytest.mark.parametrize("use", [READING, WRITING])
def test_every_other_name_of_the_java_client_is_noted(use: Use) -> None:
    options = read_with if use is READING else write_with
    for name in JAVA_NAMES - use.honoured - use.refused.keys():
        assert options({f"kafka.{name}": "1"}).notes == (
            f"The setting kafka.{name} has no effect here.",
        )


@pytest.mark.parametrize("use", [READING, WRITING])
def test_every_name_with_a_meaning_is_one_of_the_java_clients(use: Use) -> None:
    assert (use.honoured | use.refused.keys()) - JAVA_NAMES == {"security.protocol"}


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("fetch.max.byte", "; the nearest is kafka.fetch.max.bytes"),
        ("bootstrap.server", "; the nearest is kafka.bootstrap.servers"),
        ("zzz", ""),
    ],
)
def test_a_misspelt_setting_is_refused_with_the_nearest_name(name: str, hint: str) -> None:
    with pytest.raises(OptionError) as refusal:
        read_with({f"kafka.{name}": "x"})
    assert str(refusal.value) == f"kafka.{name} is not a setting of the Kafka client{hint}."
