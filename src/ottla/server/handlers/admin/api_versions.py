"""ApiVersions (18): versions 0 to 5. What is served, and from version 3 on the features of the cluster (KIP-584).

The response header is version 0 in every version; an unknown version is answered by the dispatcher; version 3 must
leave out supported features whose minimum is 0; Produce is advertised from version 0. A
client that names a cluster (version 5) means this node of it, or has been misrouted; a controller's listener, which
clients find by a broker, does not ask.
"""

from __future__ import annotations

import re

from ottla.common.config.feature_levels import KRAFT_VERSION
from ottla.common.errors import ErrorCode
from ottla.metadata.records import REGISTERED_FEATURES
from ottla.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.admin.context import AdminContext
from ottla.server.requests.api import Listeners, SchemaApi
from ottla.server.requests.request import Request

NO_NODE = -1
_CLIENT_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""What KIP-511 allows as name and version of the client's software."""


def handle(context: AdminContext, request: Request, message: ApiVersionsRequest) -> ApiVersionsResponse:
    """List APIs and features; nonsense as client software, or half of whom it means, is INVALID_REQUEST (KIP-511).

    Another cluster or node than the client means is REBOOTSTRAP_REQUIRED (KIP-1242).
    """
    if request.api_version >= 3 and not (
        _CLIENT_SOFTWARE.fullmatch(message.client_software_name)
        and _CLIENT_SOFTWARE.fullmatch(message.client_software_version)
        and (message.cluster_id is None) == (message.node_id == NO_NODE)
    ):
        return error_response(message, ErrorCode.INVALID_REQUEST, "")
    meant, own = (message.cluster_id, message.node_id), (context.metadata.cluster_id, context.metadata.node_id)
    if message.cluster_id is not None and meant != own and not request.dispatcher.serves_controller:
        return error_response(message, ErrorCode.REBOOTSTRAP_REQUIRED, "")
    image = context.metadata.image
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=api.key, min_version=api.min_version, max_version=api.max_version)
            for api in request.dispatcher.apis(request.listener_name)
        ],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, (low, high) in REGISTERED_FEATURES.items()
            if low > 0 or request.api_version >= 4
        ],
        finalized_features_epoch=image.offset,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in sorted({**image.features, KRAFT_VERSION: context.metadata.kraft_version}.items())
            if level > 0
        ],
    )


def error_response(message: ApiVersionsRequest, code: ErrorCode, text: str) -> ApiVersionsResponse:
    """The bare error."""
    return ApiVersionsResponse(error_code=code)


API_VERSIONS = SchemaApi(
    ApiKey.API_VERSIONS,
    handle,
    error_response,
    listeners=Listeners.BOTH,
    cache_inputs=lambda context: (context.metadata.image, context.metadata.kraft_version),
)
