"""DescribeDelegationToken (41): versions 1 to 3, from the published image, by `controller.delegation_tokens`."""

from __future__ import annotations

from ottla.common.config.config_keys_tokens import token_secret
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.acl import AclOperation, ResourceType, principal_of
from ottla.common.kafka.delegation_token import DelegationToken
from ottla.controller.delegation_tokens import describe_delegation_tokens
from ottla.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.admin.context import AdminContext
from ottla.server.handlers.admin.token_requests import check_token_request
from ottla.server.requests.api import SchemaApi, bare_error
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.request import Request


def handle(
    context: AdminContext, request: Request, message: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    """Tokens of the named owners that the requester owns or may describe."""
    check_token_request(request)
    secret = token_secret(context.config.get_str)
    if not secret:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    owners = None
    if message.owners is not None:
        owners = [principal_of(each.principal_type, each.principal_name) for each in message.owners]

    def visible(token: DelegationToken) -> bool:
        return (
            token.belongs_to(request.principal)
            or request.allowed(AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id, audit=False)
            or request.allowed(AclOperation.DESCRIBE_TOKENS, ResourceType.USER, token.owner, audit=False)
        )

    return describe_delegation_tokens(context.metadata.image, owners, visible, secret)


DESCRIBE_DELEGATION_TOKEN = SchemaApi(
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
    handle,
    bare_error(DescribeDelegationTokenResponse),
    item_needs=(
        RequiredPermission(AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN),
        RequiredPermission(AclOperation.DESCRIBE_TOKENS, ResourceType.USER),
    ),
)
