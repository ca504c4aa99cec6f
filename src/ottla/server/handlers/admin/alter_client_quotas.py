"""AlterClientQuotas (49): versions 0 to 1, forwarded to the active controller (KIP-546)."""

from __future__ import annotations

from ottla.common.config.config_keys_bounds import MAX_CLIENT_QUOTAS
from ottla.common.errors import ErrorCode
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.controller.client_quotas import entity_of, handle_alter_client_quotas
from ottla.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterQuotasResult,
)
from ottla.protocol.registry import ApiKey
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.controller_requests import controller_api
from ottla.server.requests.stepped import Division


def error_response(message: AlterClientQuotasRequest, code: ErrorCode, text: str) -> AlterClientQuotasResponse:
    """The error for every entity."""
    return AlterClientQuotasResponse(
        entries=[
            AlterQuotasResult(error_code=code, error_message=text, entity=entry.entity) for entry in message.entries
        ]
    )


ALTER_CLIENT_QUOTAS = controller_api(
    ApiKey.ALTER_CLIENT_QUOTAS,
    lambda image, message, controller: handle_alter_client_quotas(
        image, message, controller.config.get_int(MAX_CLIENT_QUOTAS)
    ),
    error_response,
    needs=RequiredPermission(AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER),
    forwarded=True,
    divisions=(Division(("entries",), "entries", entity_of, mentions=2),),
)
