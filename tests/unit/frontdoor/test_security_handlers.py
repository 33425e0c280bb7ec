"""What clients that look for security are answered: that there is none, in every version."""

import asyncio
from typing import Any

import pytest

from penstock.frontdoor.kafka.api import Api
from penstock.frontdoor.kafka.handlers import (
    create_acls,
    create_delegation_token,
    delete_acls,
    describe_acls,
    describe_delegation_token,
    describe_user_scram_credentials,
    expire_delegation_token,
    renew_delegation_token,
    sasl_authenticate,
    sasl_handshake,
)
from penstock.protocol.kafka.error_codes import ErrorCode
from penstock.protocol.kafka.messages.create_acls import AclCreation, CreateAclsRequest
from penstock.protocol.kafka.messages.create_delegation_token import CreateDelegationTokenRequest
from penstock.protocol.kafka.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from penstock.protocol.kafka.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from tests.unit.broker.lone_leaderships import MadeUpCluster, broker
from tests.unit.frontdoor.admin_world import versions_of
from tests.unit.frontdoor.cluster_world import World

REFUSALS = {
    sasl_handshake.API: ErrorCode.ILLEGAL_SASL_STATE,
    sasl_authenticate.API: ErrorCode.ILLEGAL_SASL_STATE,
    describe_acls.API: ErrorCode.SECURITY_DISABLED,
    create_delegation_token.API: ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
    renew_delegation_token.API: ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
    expire_delegation_token.API: ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
    describe_delegation_token.API: ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
}


def ask(api: Api, version: int, request: Any) -> Any:
    return asyncio.run(World(MadeUpCluster(broker(1))).answer(api, version, request))


@pytest.mark.parametrize("api", REFUSALS, ids=lambda api: api.key.name)
def test_the_answer_is_that_of_a_broker_without_security(api: Api) -> None:
    for version in versions_of(api):
        assert ask(api, version, api.request()).error_code == REFUSALS[api]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_each_rule_and_each_filter_is_refused(version: int) -> None:
    creation = CreateAclsRequest(creations=[AclCreation(), AclCreation()])
    deletion = DeleteAclsRequest(filters=[DeleteAclsFilter()] * 3)
    created = ask(create_acls.API, version, creation).results
    deleted = ask(delete_acls.API, version, deletion).filter_results
    assert [each.error_code for each in created] == [ErrorCode.SECURITY_DISABLED] * 2
    assert [each.error_code for each in deleted] == [ErrorCode.SECURITY_DISABLED] * 3


def test_a_token_is_refused_in_the_name_of_its_owner() -> None:
    nobody = ask(create_delegation_token.API, 3, CreateDelegationTokenRequest())
    assert (nobody.principal_type, nobody.principal_name) == ("User", "ANONYMOUS")
    request = CreateDelegationTokenRequest(owner_principal_type="User", owner_principal_name="x")
    somebody = ask(create_delegation_token.API, 3, request)
    assert somebody.principal_name == "x"
    assert somebody.token_requester_principal_name == "ANONYMOUS"
    assert somebody.expiry_timestamp_ms == -1


def test_users_have_no_credentials() -> None:
    api = describe_user_scram_credentials.API
    assert ask(api, 0, DescribeUserScramCredentialsRequest(users=None)).results == []
    users = [UserName(name=name) for name in ("a", "b", "a")]
    answer = ask(api, 0, DescribeUserScramCredentialsRequest(users=users))
    assert [(each.user, each.error_code) for each in answer.results] == [
        ("a", ErrorCode.DUPLICATE_RESOURCE),
        ("b", ErrorCode.RESOURCE_NOT_FOUND),
    ]
