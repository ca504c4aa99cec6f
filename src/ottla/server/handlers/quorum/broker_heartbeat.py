"""BrokerHeartbeat (63): versions 0 to 2, on the controller's listener (KIP-631)."""

from __future__ import annotations

from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.controller.registration import handle_broker_heartbeat
from ottla.protocol.messages.broker_heartbeat import BrokerHeartbeatResponse
from ottla.protocol.registry import ApiKey
from ottla.server.requests.api import bare_error
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.controller_requests import controller_api

BROKER_HEARTBEAT = controller_api(
    ApiKey.BROKER_HEARTBEAT,
    handle_broker_heartbeat,
    bare_error(BrokerHeartbeatResponse),
    needs=RequiredPermission(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER),
)
