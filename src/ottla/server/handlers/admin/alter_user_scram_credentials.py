"""AlterUserScramCredentials (51): version 0, forwarded to the active controller (KIP-554, KIP-900)."""

from __future__ import annotations

from ottla.common.config.config_keys_bounds import MAX_SCRAM_CREDENTIALS
from ottla.common.errors import ErrorCode
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.controller.scram_credentials import handle_alter_user_scram_credentials
from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from ottla.protocol.registry import ApiKey
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.controller_requests import controller_api
from ottla.server.requests.stepped import Division


def error_response(
    message: AlterUserScramCredentialsRequest, code: ErrorCode, text: str
) -> AlterUserScramCredentialsResponse:
    """The error for every user."""
    names = dict.fromkeys([*(each.name for each in message.deletions), *(each.name for each in message.upsertions)])
    return AlterUserScramCredentialsResponse(
        results=[AlterUserScramCredentialsResult(user=name, error_code=code, error_message=text) for name in names]
    )


ALTER_USER_SCRAM_CREDENTIALS = controller_api(
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    lambda image, message, controller: handle_alter_user_scram_credentials(
        image, message, controller.config.get_int(MAX_SCRAM_CREDENTIALS)
    ),
    error_response,
    needs=RequiredPermission(AclOperation.ALTER, ResourceType.CLUSTER),
    forwarded=True,
    divisions=(
        Division(
            ("deletions", "upsertions"), "results", lambda change: change.name, mentions=2, items=256, together=True
        ),
    ),
)
