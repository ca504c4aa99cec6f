"""Delegation token requests (KIP-48), which are permitted only to clients authenticated by other means than a token.

Otherwise a token could create further tokens without end. Anonymous clients can't own tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.acl import ANONYMOUS, TokenPrincipal
from ottla.controller.result import ControllerResult
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.admin.context import AdminContext
from ottla.server.requests.api import SchemaApi, bare_error
from ottla.server.requests.request import Request


def check_token_request(request: Request) -> None:
    """Raise KafkaError DELEGATION_TOKEN_REQUEST_NOT_ALLOWED if the client may not use token requests."""
    if request.principal == ANONYMOUS or isinstance(request.principal, TokenPrincipal):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def token_api(
    key: ApiKey, decide: Callable[..., ControllerResult[Any]], response: Callable[..., object]
) -> SchemaApi[AdminContext]:
    """API that changes a token for the requester: `decide(image, message, principal, controller)`."""

    def handle(context: AdminContext, request: Request, message: Any) -> None:
        check_token_request(request)
        context.decisions.submit(
            request, lambda image, controller: decide(image, message, request.principal, controller)
        )

    return SchemaApi(key, handle, bare_error(response), forwarded=True)
