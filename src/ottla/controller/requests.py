"""Handlers for requests that brokers send to the controller on their own behalf.

Used when the controller is in the broker's own process; other brokers reach the same handlers through the controller's
listener. Client requests are forwarded unchanged and have handlers of their own. A handler is imported for its first
request: a single node sends few of these.
"""

from __future__ import annotations

from typing import Any

from ottla.common.errors import InvariantError
from ottla.controller.result import ControllerOperation
from ottla.protocol.registry import ApiKey, spec_of_request


def operation_of(message: Any) -> ControllerOperation[Any]:
    """Return the operation for a broker's request in its newest version."""
    match spec_of_request(message).key:
        case ApiKey.CREATE_TOPICS:
            from ottla.controller.topics import handle_create_topics

            return lambda image, context: handle_create_topics(image, message, context)
        case ApiKey.ALTER_PARTITION:
            from ottla.controller.replication import FIRST_VERSION_WITH_EPOCHS, handle_alter_partition

            return lambda image, context: handle_alter_partition(image, message, FIRST_VERSION_WITH_EPOCHS, context)
        case ApiKey.ASSIGN_REPLICAS_TO_DIRS:
            from ottla.controller.directories import handle_assign_replicas_to_dirs

            return lambda image, context: handle_assign_replicas_to_dirs(image, message, context)
        case ApiKey.BROKER_REGISTRATION:
            from ottla.controller.registration import handle_broker_registration

            return lambda image, context: handle_broker_registration(image, message, context)
        case ApiKey.BROKER_HEARTBEAT:
            from ottla.controller.registration import handle_broker_heartbeat

            return lambda image, context: handle_broker_heartbeat(image, message, context)
        case ApiKey.CONTROLLER_REGISTRATION:
            from ottla.controller.registration import handle_controller_registration

            return lambda image, _context: handle_controller_registration(image, message)
        case ApiKey.ALLOCATE_PRODUCER_IDS:
            from ottla.controller.producer_ids import handle_allocate_producer_ids

            return lambda image, _context: handle_allocate_producer_ids(image, message)
        case key:
            raise InvariantError(f"{key.name} is not a request from a broker to the controller")
