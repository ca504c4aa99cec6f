"""DescribeUserScramCredentials (50): version 0, from the published image, by `controller.scram_credentials`.

`kafka-configs --entity-type users --describe` sends it together with DescribeClientQuotas.
"""

from __future__ import annotations

from collections.abc import Generator

from ottla.common.errors import ErrorCode
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.controller.scram_credentials import describe_user_scram_credentials
from ottla.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.admin.context import AdminContext
from ottla.server.requests.api import SchemaApi
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.request import Request


def handle(
    context: AdminContext, request: Request, message: DescribeUserScramCredentialsRequest
) -> Generator[None, None, DescribeUserScramCredentialsResponse]:
    """Describe the named users, or all."""
    return describe_user_scram_credentials(context.metadata.image, message)


def error_response(
    message: DescribeUserScramCredentialsRequest, code: ErrorCode, text: str
) -> DescribeUserScramCredentialsResponse:
    """The error for the whole request and for each named user; without the names, as in Apache Kafka."""
    results = [DescribeUserScramCredentialsResult(error_code=code, error_message=text) for _ in message.users or ()]
    return DescribeUserScramCredentialsResponse(error_code=code, error_message=text, results=results)


DESCRIBE_USER_SCRAM_CREDENTIALS = SchemaApi(
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    handle,
    error_response,
    needs=RequiredPermission(AclOperation.DESCRIBE, ResourceType.CLUSTER),
)
