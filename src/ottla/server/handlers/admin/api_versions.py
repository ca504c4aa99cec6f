"""ApiVersions (18): versions 0 to 5. Served APIs, and from version 3 on the cluster's features (KIP-584).

The response header is version 0 in every version; the dispatcher answers unknown versions; version 3 must omit
supported features whose minimum is 0; Produce is advertised from version 0. From version 5 on a client may name the
cluster and node that it expects, and is rejected if it was misrouted. A controller's listener, which clients find
through a broker, does not check that.
"""

from __future__ import annotations

import re
from typing import cast

from ottla.common.config.feature_levels import KRAFT_VERSION
from ottla.common.errors import ErrorCode
from ottla.common.platform.channel import ClientChannel
from ottla.metadata.records import REGISTERED_FEATURES
from ottla.protocol.codec import read_message
from ottla.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from ottla.protocol.registry import VERSIONS, ApiKey
from ottla.server.handlers.admin.context import AdminContext
from ottla.server.requests.api import SchemaApi, bare_error
from ottla.server.requests.request import Request

NO_NODE = -1
_CLIENT_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""Characters that KIP-511 allows in name and version of the client's software."""
MAX_SOFTWARE_LENGTH = 200
"""Characters of name and version together: longer ones are not kept, since each connection keeps its own."""


def handle(context: AdminContext, request: Request, message: ApiVersionsRequest) -> ApiVersionsResponse:
    """List APIs and features.

    An invalid client software name, or only half of the expected node, is INVALID_REQUEST (KIP-511). Another cluster
    or node than the expected one is REBOOTSTRAP_REQUIRED (KIP-1242).
    """
    if request.api_version >= 3 and not (
        _CLIENT_SOFTWARE.fullmatch(message.client_software_name)
        and _CLIENT_SOFTWARE.fullmatch(message.client_software_version)
        and (message.cluster_id is None) == (message.node_id == NO_NODE)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    if context.keeps_software:
        _note_software(request, message)
    meant, own = (message.cluster_id, message.node_id), (context.metadata.cluster_id, context.metadata.node_id)
    if message.cluster_id is not None and meant != own and not request.dispatcher.serves_controller:
        return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
    image = context.metadata.image
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=key, min_version=VERSIONS[key].low, max_version=VERSIONS[key].high)
            for key in request.dispatcher.apis(request.listener_name)
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


def note_cached(context: AdminContext, request: Request, body: bytes) -> None:
    """Keep the client's library also if the response is cached."""
    if context.keeps_software:
        message, _ = read_message(ApiVersionsRequest, request.api_version, body, 0, len(body))
        _note_software(request, message)


def _note_software(request: Request, message: ApiVersionsRequest) -> None:
    software = message.client_software_name, message.client_software_version
    if request.api_version >= 3 and sum(map(len, software)) <= MAX_SOFTWARE_LENGTH:
        cast(ClientChannel, request.channel).client_software = software


API_VERSIONS = SchemaApi(
    ApiKey.API_VERSIONS,
    handle,
    bare_error(ApiVersionsResponse),
    cache_inputs=lambda context: (context.metadata.image, context.metadata.kraft_version),
    cache_hit=note_cached,
)
