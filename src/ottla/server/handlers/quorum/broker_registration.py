"""BrokerRegistration (62): versions 0 to 4, on the controller's listener (KIP-631)."""

from __future__ import annotations

from ottla.common.acl import AclOperation, ResourceType
from ottla.controller.registration import handle_broker_registration
from ottla.protocol.messages.broker_registration import BrokerRegistrationResponse
from ottla.protocol.registry import ApiKey
from ottla.server.api import Listeners, bare_error
from ottla.server.authorization import Need
from ottla.server.decisions import decided

BROKER_REGISTRATION = decided(
    ApiKey.BROKER_REGISTRATION,
    handle_broker_registration,
    bare_error(BrokerRegistrationResponse),
    listeners=Listeners.CONTROLLER,
    needs=Need(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER),
)
