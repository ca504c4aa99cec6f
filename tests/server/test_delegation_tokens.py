"""Delegation tokens in a real broker: permissions to request, create and see them; and their expiry."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.common.errors import ErrorCode
from ottla.common.kafka.acl import ANONYMOUS, AclOperation, ResourceType, TokenPrincipal
from ottla.protocol.messages.create_acls import CreateAclsRequest
from ottla.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from ottla.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from ottla.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from ottla.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from ottla.server.requests.principals import pack_principal, unpack_principal

from .harness import Connection, Server
from .test_acls import STANDARD, creation

ANN, BOB, ROOT = "User:ann", "User:bob", "User:root"
NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
SECRET = {"delegation_token_secret_key": "kept-from-all"}
GUARDED = {"authorizer_class_name": STANDARD, "super_users": ROOT}
REQUESTS = [
    (CreateDelegationTokenRequest(), 3),
    (RenewDelegationTokenRequest(), 2),
    (ExpireDelegationTokenRequest(), 2),
    (DescribeDelegationTokenRequest(owners=None), 3),
]


@pytest.fixture
def server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Server]:
    made = Server(tmp_path, **getattr(request, "param", SECRET))
    yield made
    made.stop()


def client(server: Server, principal: str) -> Connection:
    connection = server.connect()
    connection.channel.principal = principal
    return connection


def create(client: Connection, owner: str | None = None, version: int = 3, lifetime_ms: int = -1) -> Any:
    request = CreateDelegationTokenRequest(max_lifetime_ms=lifetime_ms)
    if owner is not None:
        request.owner_principal_type, request.owner_principal_name = "User", owner
    return client.ask(request, version)


def seen(client: Connection, *owners: str) -> list[str]:
    named = [DescribeDelegationTokenOwner(principal_type="User", principal_name=name) for name in owners] or None
    response = client.ask(DescribeDelegationTokenRequest(owners=named), 3)
    assert response.error_code == 0
    return sorted(token.token_id for token in response.tokens)


@pytest.mark.promise("S6")
def test_anonymous_and_token_clients_get_no_tokens(server: Server) -> None:
    for principal in (ANONYMOUS, TokenPrincipal(ANN)):
        answers = [client(server, principal).ask(message, version).error_code for message, version in REQUESTS]
        assert answers == [NOT_ALLOWED] * 4
        assert client(server, principal).ask(DescribeDelegationTokenRequest(owners=None), 1).error_code == NOT_ALLOWED
    assert create(client(server, ANN), version=1).error_code == 0
    assert create(client(server, ANN), version=2).error_code == 0
    assert isinstance(unpack_principal(pack_principal(TokenPrincipal(ANN))), TokenPrincipal)
    assert type(unpack_principal(pack_principal(ANN))) is str


@pytest.mark.parametrize("server", [{}], indirect=True)
def test_there_are_none_without_a_secret(server: Server) -> None:
    answers = [client(server, ANN).ask(message, version).error_code for message, version in REQUESTS]
    assert answers == [ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED] * 4


@pytest.mark.parametrize("server", [{"delegation_token_master_key": "by its older name", **GUARDED}], indirect=True)
def test_tokens_of_others_have_to_be_allowed(server: Server) -> None:
    ann, bob, root = (client(server, principal) for principal in (ANN, BOB, ROOT))
    assert create(ann, "bob").error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    own, others = create(ann).token_id, create(root, "bob").token_id
    assert (seen(ann), seen(bob), seen(root)) == ([own], [others], sorted([own, others]))

    def allow(kind: ResourceType, name: str, operation: AclOperation) -> None:
        allowed = CreateAclsRequest(creations=[creation(kind, name, operation, ANN)])
        assert root.ask(allowed, 3).results[0].error_code == 0

    allow(ResourceType.DELEGATION_TOKEN, others, AclOperation.DESCRIBE)
    assert seen(ann) == sorted([own, others])
    assert seen(ann, "bob") == [others]
    allow(ResourceType.USER, BOB, AclOperation.CREATE_TOKENS)
    made = create(ann, "bob")
    assert (made.error_code, made.principal_name, made.token_requester_principal_name) == (0, "bob", "ann")
    third = create(root, "bob").token_id
    assert third not in seen(ann)
    allow(ResourceType.USER, BOB, AclOperation.DESCRIBE_TOKENS)
    assert third in seen(ann)


@pytest.mark.parametrize("server", [{**SECRET, "delegation_token_expiry_check_interval_ms": "1"}], indirect=True)
def test_expired_tokens_are_removed_and_others_survive_restart(server: Server) -> None:
    ann = client(server, ANN)
    kept = create(ann)
    assert create(ann, lifetime_ms=1).error_code == 0
    server.run_until(lambda: list(server.broker.image.delegation_tokens) == [kept.token_id])
    server.restart()
    ann = client(server, ANN)
    assert seen(ann) == [kept.token_id]
    assert ann.ask(ExpireDelegationTokenRequest(hmac=kept.hmac, expiry_time_period_ms=-1), 2).error_code == 0
    assert seen(ann) == []
