"""RenewDelegationToken (39): versions 1 and 2, forwarded to the active controller (KIP-48)."""

from __future__ import annotations

from ottla.controller.delegation_tokens import handle_renew_delegation_token
from ottla.protocol.messages.renew_delegation_token import RenewDelegationTokenResponse
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.admin.token_requests import token_api

RENEW_DELEGATION_TOKEN = token_api(
    ApiKey.RENEW_DELEGATION_TOKEN, handle_renew_delegation_token, RenewDelegationTokenResponse
)
