"""AllocateProducerIds (67): version 0, on the controller's listener (KIP-730)."""

from __future__ import annotations

from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.controller.producer_ids import handle_allocate_producer_ids
from ottla.protocol.messages.allocate_producer_ids import AllocateProducerIdsResponse
from ottla.protocol.registry import ApiKey
from ottla.server.requests.api import bare_error
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.controller_requests import controller_api

ALLOCATE_PRODUCER_IDS = controller_api(
    ApiKey.ALLOCATE_PRODUCER_IDS,
    lambda image, message, controller: handle_allocate_producer_ids(image, message),
    bare_error(AllocateProducerIdsResponse),
    needs=RequiredPermission(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER),
)
