"""BrokerHeartbeat (63): versions 0 to 2, on the controller's listener (KIP-631)."""

from __future__ import annotations

from ottla.common.acl import AclOperation, ResourceType
from ottla.controller.registration import handle_broker_heartbeat
from ottla.protocol.messages.broker_heartbeat import BrokerHeartbeatResponse
from ottla.protocol.registry import ApiKey
from ottla.server.api import Listeners, bare_error
from ottla.server.authorization import Need
from ottla.server.decisions import decided

BROKER_HEARTBEAT = decided(
    ApiKey.BROKER_HEARTBEAT,
    handle_broker_heartbeat,
    bare_error(BrokerHeartbeatResponse),
    listeners=Listeners.CONTROLLER,
    needs=Need(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER),
)
