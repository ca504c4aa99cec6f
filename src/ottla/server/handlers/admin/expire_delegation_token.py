"""ExpireDelegationToken (40): versions 1 and 2, forwarded to the active controller (KIP-48)."""

from __future__ import annotations

from ottla.controller.delegation_tokens import handle_expire_delegation_token
from ottla.protocol.messages.expire_delegation_token import ExpireDelegationTokenResponse
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.admin.token_requests import token_api

EXPIRE_DELEGATION_TOKEN = token_api(
    ApiKey.EXPIRE_DELEGATION_TOKEN, handle_expire_delegation_token, ExpireDelegationTokenResponse
)
