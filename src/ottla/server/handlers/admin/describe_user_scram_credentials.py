"""DescribeUserScramCredentials (50): version 0. No user has a password, since there is no authentication.

Answered all the same, because `kafka-configs --entity-type users --describe` asks beside the limits of users.
"""

from __future__ import annotations

from ottla.common.acl import AclOperation, ResourceType
from ottla.common.errors import ErrorCode
from ottla.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from ottla.protocol.registry import ApiKey
from ottla.server.api import DeclaredApi
from ottla.server.authorization import Need
from ottla.server.handlers.admin.context import AdminContext
from ottla.server.request import Request


def handle(
    context: AdminContext, request: Request, message: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """Nobody of those that are named is found."""
    names = [user.name for user in message.users or ()]
    return DescribeUserScramCredentialsResponse(
        error_message=None, results=[_result(name, repeated=names.count(name) > 1) for name in dict.fromkeys(names)]
    )


def _result(name: str, *, repeated: bool) -> DescribeUserScramCredentialsResult:
    if repeated:
        code = ErrorCode.DUPLICATE_RESOURCE
        text = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
    else:
        code = ErrorCode.RESOURCE_NOT_FOUND
        text = f"Attempt to describe a user credential that does not exist: {name}"
    return DescribeUserScramCredentialsResult(user=name, error_code=code, error_message=text)


def error_response(
    message: DescribeUserScramCredentialsRequest, code: ErrorCode, text: str
) -> DescribeUserScramCredentialsResponse:
    """The error, of the request as a whole."""
    return DescribeUserScramCredentialsResponse(error_code=code, error_message=text)


DESCRIBE_USER_SCRAM_CREDENTIALS = DeclaredApi(
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    handle,
    error_response,
    needs=Need(AclOperation.DESCRIBE, ResourceType.CLUSTER),
)
