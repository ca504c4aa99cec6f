"""AllocateProducerIds (67): version 0, on the controller's listener (KIP-730)."""

from __future__ import annotations

from ottla.common.acl import AclOperation, ResourceType
from ottla.controller.producer_ids import handle_allocate_producer_ids
from ottla.protocol.messages.allocate_producer_ids import AllocateProducerIdsResponse
from ottla.protocol.registry import ApiKey
from ottla.server.api import Listeners, bare_error
from ottla.server.authorization import Need
from ottla.server.decisions import decided

ALLOCATE_PRODUCER_IDS = decided(
    ApiKey.ALLOCATE_PRODUCER_IDS,
    lambda image, message, controller: handle_allocate_producer_ids(image, message),
    bare_error(AllocateProducerIdsResponse),
    listeners=Listeners.CONTROLLER,
    needs=Need(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER),
)
