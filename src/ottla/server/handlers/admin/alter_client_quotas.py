"""AlterClientQuotas (49): versions 0 to 1, forwarded to the active controller (KIP-546)."""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.controller.client_quotas import handle_alter_client_quotas
from ottla.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterQuotasResult,
)
from ottla.protocol.registry import ApiKey
from ottla.server.context import BrokerContext
from ottla.server.dispatch import DeclaredApi
from ottla.server.handlers.submit import submit
from ottla.server.request import Request


def handle(context: BrokerContext, request: Request, message: AlterClientQuotasRequest) -> None:
    """Hand the request to the controller; the channel parks until the change is committed."""
    submit(context, request, lambda image, controller: handle_alter_client_quotas(image, message))


def error_response(message: AlterClientQuotasRequest, code: ErrorCode, text: str) -> AlterClientQuotasResponse:
    """The same error for every entity."""
    return AlterClientQuotasResponse(
        entries=[
            AlterQuotasResult(error_code=code, error_message=text, entity=entry.entity) for entry in message.entries
        ]
    )


ALTER_CLIENT_QUOTAS = DeclaredApi(ApiKey.ALTER_CLIENT_QUOTAS, handle, error_response, forwarded=True)
