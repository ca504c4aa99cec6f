"""Access rules of the HTTP endpoint: the Kafka protocol's authorizer, and a bearer token.

Requests need DESCRIBE on the cluster, except for open paths. The principal comes from the client's certificate, or from
the token in `--metrics-token-file`, which authenticates as `User:metrics`. Without either the client is anonymous, and
is served only without an authorizer, or by an ACL for `User:ANONYMOUS`.

Invariant: if a token is configured, anonymous clients are refused, and so is a wrong token, whatever the certificate.
"""

from __future__ import annotations

import hmac

from ottla.common.kafka.acl import ANONYMOUS, CLUSTER_NAME, AclOperation, ResourceType
from ottla.security.authorizer import StandardAuthorizer

OPEN = frozenset({"/healthz"})
"""Paths open to all clients: a load balancer has no token, and gets one word."""
TOKEN_USER = "User:metrics"
"""Principal of clients that present the token."""
_SCHEME = "bearer "


class HttpAccess:
    """The access rules of one node."""

    __slots__ = ("_authorizer", "_token")

    def __init__(self, authorizer: StandardAuthorizer | None, token: str | None) -> None:
        self._authorizer = authorizer
        self._token = None if token is None else token.encode()

    def refusal(self, path: str, principal: str, authorization: str, host: str) -> str | None:
        """The status, 401 or 403, of a refused request; see `ottla.net.metrics_endpoint.Refusal`."""
        if path in OPEN:
            return None
        if authorization and self._token is not None:
            if not self._is_token(authorization):
                return "401"
            principal = TOKEN_USER
        if principal == ANONYMOUS and self._token is not None:
            return "401"
        if self._authorizer is None or self._authorizer.allows(
            principal, host, AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME, request=f"GET {path}"
        ):
            return None
        return "401" if principal == ANONYMOUS else "403"

    def _is_token(self, authorization: str) -> bool:
        if not authorization.lower().startswith(_SCHEME):
            return False
        shown = authorization[len(_SCHEME) :].strip().encode()
        return self._token is not None and hmac.compare_digest(shown, self._token)
