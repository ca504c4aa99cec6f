"""Who may ask for delegation tokens at all (KIP-48): whoever showed who he is, and by something else than a token.

With a token one could have others without end, and nobody in particular has none.
"""

from __future__ import annotations

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.acl import ANONYMOUS, TokenPrincipal
from ottla.server.requests.request import Request


def check_token_request(request: Request) -> None:
    """Raises KafkaError DELEGATION_TOKEN_REQUEST_NOT_ALLOWED."""
    if request.principal == ANONYMOUS or isinstance(request.principal, TokenPrincipal):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
