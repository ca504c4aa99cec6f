"""BrokerRegistration (62): versions 0 to 4, on the controller's listener (KIP-631)."""

from __future__ import annotations

from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.controller.registration import handle_broker_registration
from ottla.protocol.messages.broker_registration import BrokerRegistrationResponse
from ottla.protocol.registry import ApiKey
from ottla.server.requests.api import bare_error
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.controller_requests import controller_api

BROKER_REGISTRATION = controller_api(
    ApiKey.BROKER_REGISTRATION,
    handle_broker_registration,
    bare_error(BrokerRegistrationResponse),
    needs=RequiredPermission(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER),
)
