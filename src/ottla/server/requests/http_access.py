"""Who may ask over HTTP: the same authorizer that requests of Kafka's protocol go through, and a token of its own.

Whoever asks for something that is not named open needs DESCRIBE on the cluster. Who he is says the certificate that he
showed, or the token of `--metrics-token-file`, which makes him `User:metrics`; without either he is anonymous, and
served only where nobody is asked who he is: without an authorizer, or by an ACL for `User:ANONYMOUS`.

Invariant: with a token nobody anonymous is served, and a wrong one is refused whatever else was shown.
"""

from __future__ import annotations

import hmac

from ottla.common.kafka.acl import ANONYMOUS, CLUSTER_NAME, AclOperation, ResourceType
from ottla.server.requests.authorization import Authorizer

OPEN = frozenset({"/healthz"})
"""What everybody may ask: a load balancer has no token, and hears one word."""
TOKEN_USER = "User:metrics"
"""Who shows the token."""
_SCHEME = "bearer "


class HttpAccess:
    """The rules of one node."""

    __slots__ = ("_authorizer", "_token")

    def __init__(self, authorizer: Authorizer | None, token: str | None) -> None:
        self._authorizer = authorizer
        self._token = None if token is None else token.encode()

    def refusal(self, path: str, principal: str, authorization: str, host: str) -> str | None:
        """The status, 401 or 403, of a request that is refused; see `ottla.net.metrics_endpoint.Refusal`."""
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
