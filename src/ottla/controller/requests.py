"""Handlers for requests that brokers send to the controller on their own behalf.

Used when the controller is in the broker's own process; other brokers reach the same handlers through the controller's
listener. Client requests are forwarded unchanged and have handlers of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.common.errors import InvariantError
from ottla.controller.directories import handle_assign_replicas_to_dirs
from ottla.controller.producer_ids import handle_allocate_producer_ids
from ottla.controller.registration import (
    handle_broker_heartbeat,
    handle_broker_registration,
    handle_controller_registration,
)
from ottla.controller.replication import FIRST_VERSION_WITH_EPOCHS, handle_alter_partition
from ottla.controller.result import ControllerDecision, ControllerOperation
from ottla.controller.topics import handle_create_topics
from ottla.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from ottla.protocol.messages.alter_partition import AlterPartitionRequest
from ottla.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from ottla.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from ottla.protocol.messages.broker_registration import BrokerRegistrationRequest
from ottla.protocol.messages.controller_registration import ControllerRegistrationRequest
from ottla.protocol.messages.create_topics import CreateTopicsRequest

_HANDLERS: Mapping[type, ControllerDecision] = {
    CreateTopicsRequest: handle_create_topics,
    AlterPartitionRequest: lambda image, request, context: handle_alter_partition(
        image, request, FIRST_VERSION_WITH_EPOCHS, context
    ),
    AssignReplicasToDirsRequest: handle_assign_replicas_to_dirs,
    BrokerRegistrationRequest: handle_broker_registration,
    BrokerHeartbeatRequest: handle_broker_heartbeat,
    ControllerRegistrationRequest: lambda image, request, _: handle_controller_registration(image, request),
    AllocateProducerIdsRequest: lambda image, request, _: handle_allocate_producer_ids(image, request),
}


def operation_of(message: object) -> ControllerOperation[Any]:
    """Return the operation for a broker's request in its newest version."""
    handler = _HANDLERS.get(type(message))
    if handler is None:
        raise InvariantError(f"{type(message).__name__} is not a request from a broker to the controller")
    return lambda image, context: handler(image, message, context)
