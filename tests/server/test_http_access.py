"""Access over HTTP, with a real authorizer."""

from __future__ import annotations

import pytest

from ottla.common.kafka.acl import ANONYMOUS, CLUSTER_NAME, Acl, AclOperation, PatternType, Permission, ResourceType
from ottla.security.authorizer import StandardAuthorizer
from ottla.server.requests.http_access import TOKEN_USER, HttpAccess

TOKEN = "0123456789abcdef"
HOST = "10.0.0.1"


def authorizer(*principals: str, allow_without_acls: bool = False) -> StandardAuthorizer:
    acls = {
        bytes([number]) * 16: Acl(
            ResourceType.CLUSTER,
            CLUSTER_NAME,
            PatternType.LITERAL,
            principal,
            "*",
            AclOperation.DESCRIBE,
            Permission.ALLOW,
        )
        for number, principal in enumerate(principals)
    }
    return StandardAuthorizer(lambda: acls, ["User:root"], allow_without_acls=allow_without_acls)


@pytest.mark.promise("S11")
@pytest.mark.parametrize(
    ("allowed", "token", "principal", "authorization", "refused"),
    [
        (None, None, ANONYMOUS, "", None),
        (None, TOKEN, ANONYMOUS, "", "401"),
        (None, TOKEN, ANONYMOUS, f"Bearer {TOKEN}", None),
        (None, TOKEN, "User:alice", "", None),
        (None, TOKEN, "User:alice", "Bearer wrong", "401"),
        (None, TOKEN, ANONYMOUS, f"Basic {TOKEN}", "401"),
        (None, TOKEN, ANONYMOUS, TOKEN, "401"),
        (None, TOKEN, ANONYMOUS, f"Bearer {TOKEN}\xe4", "401"),
        ((), None, ANONYMOUS, "", "401"),
        ((), None, ANONYMOUS, f"Bearer {TOKEN}", "401"),
        ((), TOKEN, ANONYMOUS, f"Bearer {TOKEN}", "403"),
        ((), None, "User:root", "", None),
        ((), None, "User:alice", "", "403"),
        (("User:alice",), None, "User:alice", "", None),
        (("User:alice",), TOKEN, "User:alice", f"bearer {TOKEN}", "403"),
        ((TOKEN_USER,), TOKEN, ANONYMOUS, f"bearer  {TOKEN}", None),
        ((TOKEN_USER,), None, ANONYMOUS, f"Bearer {TOKEN}", "401"),
        ((ANONYMOUS,), None, ANONYMOUS, "", None),
        ((ANONYMOUS,), TOKEN, ANONYMOUS, "", "401"),
    ],
)
def test_metrics_need_describe_on_the_cluster(allowed, token, principal, authorization, refused):
    access = HttpAccess(None if allowed is None else authorizer(*allowed), token)
    assert access.refusal("/metrics", principal, authorization, HOST) == refused
    assert access.refusal("/console", principal, authorization, HOST) == refused, "only named paths are open"
    assert access.refusal("/healthz", principal, authorization, HOST) is None
