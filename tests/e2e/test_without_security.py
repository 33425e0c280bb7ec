"""Proves that anyone who asks for security learns at once that there is none, beside Apache Kafka.

Both listen in PLAINTEXT and have no authorizer.
"""

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.create_acls import AclCreation, CreateAclsRequest
from penstock.protocol.kafka.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
)
from penstock.protocol.kafka.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from penstock.protocol.kafka.messages.describe_acls import DescribeAclsRequest
from penstock.protocol.kafka.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from penstock.protocol.kafka.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from penstock.protocol.kafka.messages.expire_delegation_token import ExpireDelegationTokenRequest
from penstock.protocol.kafka.messages.heartbeat import HeartbeatRequest
from penstock.protocol.kafka.messages.renew_delegation_token import RenewDelegationTokenRequest
from penstock.protocol.kafka.messages.sasl_authenticate import SaslAuthenticateRequest
from penstock.protocol.kafka.messages.sasl_handshake import SaslHandshakeRequest
from tests.e2e.beside_kafka import Brokers, ask, say, talk
from tests.e2e.wire import SIZE, connect, frame
from tests.waiting import wait_until

pytestmark = [pytest.mark.xdist_group("apache-kafka"), pytest.mark.timeout(180)]

ANY, DESCRIBE, ALLOW, LITERAL, TOPIC = 1, 8, 3, 3, 2
HEARD_TIMEOUT_S = 30.0
NO_SUCH_API = 999


def same(brokers: Brokers, key: ApiKey, version: int, request: object) -> Any:
    ours, theirs = (say(address, key, version, request) for address in brokers)
    assert ours == theirs
    return ours


@pytest.mark.parametrize("version", [0, 1])
def test_a_connection_goes_on_without_sasl(brokers: Brokers, version: int) -> None:
    """The answer says that there is nothing to authenticate, and nothing else happens."""
    handshake = ask(ApiKey.SASL_HANDSHAKE, version, SaslHandshakeRequest(mechanism="SCRAM-SHA-256"))
    proof = ask(ApiKey.SASL_AUTHENTICATE, version, SaslAuthenticateRequest(auth_bytes=b"\0u\0p"))
    answers = []
    for address in brokers:
        with connect(address) as wire:
            answers.append(talk(wire, handshake, proof, handshake))
    ours, theirs = answers
    assert ours == theirs
    assert {each.error_code for each in ours} == {ErrorCode.ILLEGAL_SASL_STATE}


def test_a_client_that_must_authenticate_is_told_that_it_can_not(brokers: Brokers) -> None:
    for address in brokers:
        heard: list[KafkaError] = []
        producer = Producer(
            {
                "bootstrap.servers": address,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "user",
                "sasl.password": "password",
                "error_cb": heard.append,
                "log_level": 0,
            }
        )

        def is_refused(producer: Producer = producer, heard: list[KafkaError] = heard) -> bool:
            producer.poll(0.1)
            return any(error.code() == KafkaError._AUTHENTICATION for error in heard)

        wait_until("a refusal", is_refused, HEARD_TIMEOUT_S)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_there_are_no_rules_to_describe_or_change(brokers: Brokers, version: int) -> None:
    creation = AclCreation(
        resource_type=TOPIC,
        resource_name="topic",
        resource_pattern_type=LITERAL,
        principal="User:anybody",
        host="*",
        operation=DESCRIBE,
        permission_type=ALLOW,
    )
    everything: dict[str, Any] = {
        "resource_type_filter": ANY,
        "resource_name_filter": None,
        "pattern_type_filter": ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
    }
    described = same(brokers, ApiKey.DESCRIBE_ACLS, version, DescribeAclsRequest(**everything))
    created = same(
        brokers, ApiKey.CREATE_ACLS, version, CreateAclsRequest(creations=[creation] * 2)
    )
    filters = [DeleteAclsFilter(**everything)] * 2
    deleted = same(brokers, ApiKey.DELETE_ACLS, version, DeleteAclsRequest(filters=filters))
    results = [described, *created.results, *deleted.filter_results]
    assert [each.error_code for each in results] == [ErrorCode.SECURITY_DISABLED] * 5


def test_an_admin_client_hears_that_security_is_off(brokers: Brokers) -> None:
    rule = AclBinding(
        ResourceType.TOPIC,
        "topic",
        ResourcePatternType.LITERAL,
        "User:anybody",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    for address in brokers:
        admin = AdminClient({"bootstrap.servers": address})
        (created,) = admin.create_acls([rule]).values()
        with pytest.raises(KafkaException) as caught:
            created.result(timeout=60)
        assert caught.value.args[0].code() == KafkaError.SECURITY_DISABLED


@pytest.mark.parametrize("version", [1, 2, 3])
def test_nobody_gets_a_token(brokers: Brokers, version: int) -> None:
    creation = CreateDelegationTokenRequest(
        renewers=[CreatableRenewers(principal_type="User", principal_name="b")],
        max_lifetime_ms=1_000,
    )
    if version == 3:
        creation.owner_principal_type, creation.owner_principal_name = "User", "c"
    owner = DescribeDelegationTokenOwner(principal_type="User", principal_name="b")
    answers = [
        same(brokers, ApiKey.CREATE_DELEGATION_TOKEN, version, creation),
        same(
            brokers,
            ApiKey.DESCRIBE_DELEGATION_TOKEN,
            version,
            DescribeDelegationTokenRequest(owners=[owner]),
        ),
        same(
            brokers,
            ApiKey.DESCRIBE_DELEGATION_TOKEN,
            version,
            DescribeDelegationTokenRequest(owners=None),
        ),
    ]
    if version < 3:
        renewal = RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=1_000)
        expiry = ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=-1)
        answers.append(same(brokers, ApiKey.RENEW_DELEGATION_TOKEN, version, renewal))
        answers.append(same(brokers, ApiKey.EXPIRE_DELEGATION_TOKEN, version, expiry))
    refused = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert {each.error_code for each in answers} == {refused}


def test_no_user_has_credentials(brokers: Brokers) -> None:
    key = ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS

    def described(*names: str) -> list[Any]:
        users = [UserName(name=name) for name in names] or None
        request = DescribeUserScramCredentialsRequest(users=users)
        answers = [say(address, key, 0, request) for address in brokers]
        for answer in answers:
            answer.results.sort(key=lambda result: str(result.user))
        assert answers[0] == answers[1]
        return [each.error_code for each in answers[0].results]

    assert described() == []
    missing, twice = ErrorCode.RESOURCE_NOT_FOUND, ErrorCode.DUPLICATE_RESOURCE
    assert described("a", "b", "a", "") == [missing, twice, missing]


@pytest.mark.parametrize("key", [NO_SUCH_API, ApiKey.HEARTBEAT])
def test_what_is_not_served_ends_the_connection(brokers: Brokers, key: int) -> None:
    """An API that does not exist, and a version of one that does."""
    for address in brokers:
        with connect(address) as wire:
            sent = bytearray(frame(ApiKey.HEARTBEAT, 3, HeartbeatRequest()))
            version = 99 if key == ApiKey.HEARTBEAT else 0
            sent[SIZE.size : SIZE.size + 4] = key.to_bytes(2, "big") + version.to_bytes(2, "big")
            wire.send(bytes(sent))
            with pytest.raises(ConnectionError):
                wire.receive_frame()
