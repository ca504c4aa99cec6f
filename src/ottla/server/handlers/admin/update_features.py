"""UpdateFeatures (57): versions 0 to 2. Changes finalized levels, all or none (KIP-584)."""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.controller.features import handle_update_features
from ottla.protocol.messages.update_features import (
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.admin.context import AdminContext
from ottla.server.requests.api import SchemaApi
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.request import Request


def handle(context: AdminContext, request: Request, message: UpdateFeaturesRequest) -> None:
    """Pass the request to the controller; the channel parks until the change is committed."""
    context.decisions.submit(
        request,
        lambda image, controller: handle_update_features(image, message, request.api_version, controller),
    )


def error_response(message: UpdateFeaturesRequest, code: ErrorCode, text: str) -> UpdateFeaturesResponse:
    """The error for the whole request."""
    return UpdateFeaturesResponse(error_code=code, error_message=text)


UPDATE_FEATURES = SchemaApi(
    ApiKey.UPDATE_FEATURES,
    handle,
    error_response,
    needs=RequiredPermission(AclOperation.ALTER, ResourceType.CLUSTER),
    forwarded=True,
)
