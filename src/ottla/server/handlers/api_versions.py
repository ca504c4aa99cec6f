"""ApiVersions (18): versions 0 to 4. What is served, and from version 3 on the features of the cluster (KIP-584).

Traps (protocol.md): the response header is version 0 in every version; an unknown version is answered by the
dispatcher; version 3 must leave out supported features whose minimum is 0; Produce is advertised from version 0.
"""

from __future__ import annotations

import re

from ottla.common.errors import ErrorCode
from ottla.metadata.records import SUPPORTED_FEATURES
from ottla.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from ottla.protocol.registry import ApiKey
from ottla.server.context import BrokerContext
from ottla.server.dispatch import DeclaredApi
from ottla.server.request import Request

_CLIENT_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""What KIP-511 allows as name and version of the client's software."""


def handle(context: BrokerContext, request: Request, message: ApiVersionsRequest) -> ApiVersionsResponse:
    """List APIs and features; a nonsensical client software name is INVALID_REQUEST (KIP-511)."""
    if request.api_version >= 3 and not (
        _CLIENT_SOFTWARE.fullmatch(message.client_software_name)
        and _CLIENT_SOFTWARE.fullmatch(message.client_software_version)
    ):
        request.count_error(ErrorCode.INVALID_REQUEST)
        return error_response(message, ErrorCode.INVALID_REQUEST, "")
    image = context.image
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=api.key, min_version=api.advertised_min, max_version=api.max_version)
            for api in request.dispatcher.apis()
        ],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, (low, high) in SUPPORTED_FEATURES.items()
            if low > 0 or request.api_version >= 4
        ],
        finalized_features_epoch=image.offset,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in sorted(image.features.items())
            if level > 0
        ],
    )


def error_response(message: ApiVersionsRequest, code: ErrorCode, text: str) -> ApiVersionsResponse:
    """The bare error."""
    return ApiVersionsResponse(error_code=code)


API_VERSIONS = DeclaredApi(ApiKey.API_VERSIONS, handle, error_response, basis=lambda context: (context.image,))
