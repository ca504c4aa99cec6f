"""AlterUserScramCredentials (51): version 0, forwarded to the active controller (KIP-554, KIP-900)."""

from __future__ import annotations

from ottla.common.acl import AclOperation, ResourceType
from ottla.common.config_keys_bounds import MAX_SCRAM_CREDENTIALS
from ottla.common.errors import ErrorCode
from ottla.controller.scram_credentials import handle_alter_user_scram_credentials
from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from ottla.protocol.registry import ApiKey
from ottla.server.api import Listeners
from ottla.server.authorization import Need
from ottla.server.decisions import decided
from ottla.server.stepped import Division


def error_response(
    message: AlterUserScramCredentialsRequest, code: ErrorCode, text: str
) -> AlterUserScramCredentialsResponse:
    """The same error for every user."""
    names = dict.fromkeys([*(each.name for each in message.deletions), *(each.name for each in message.upsertions)])
    return AlterUserScramCredentialsResponse(
        results=[AlterUserScramCredentialsResult(user=name, error_code=code, error_message=text) for name in names]
    )


ALTER_USER_SCRAM_CREDENTIALS = decided(
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    lambda image, message, controller: handle_alter_user_scram_credentials(
        image, message, controller.config.get_int(MAX_SCRAM_CREDENTIALS)
    ),
    error_response,
    listeners=Listeners.BOTH,
    needs=Need(AclOperation.ALTER, ResourceType.CLUSTER),
    forwarded=True,
    division=Division(
        ("deletions", "upsertions"), "results", lambda change: change.name, mentions=2, items=256, together=True
    ),
)
