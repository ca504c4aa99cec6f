"""Permission for delegation token requests (KIP-48): only clients authenticated by other means than a token.

Otherwise a token could create further tokens without end. Anonymous clients can't own tokens.
"""

from __future__ import annotations

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.acl import ANONYMOUS, TokenPrincipal
from ottla.server.requests.request import Request


def check_token_request(request: Request) -> None:
    """Raise KafkaError DELEGATION_TOKEN_REQUEST_NOT_ALLOWED if the client may not use token requests."""
    if request.principal == ANONYMOUS or isinstance(request.principal, TokenPrincipal):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
