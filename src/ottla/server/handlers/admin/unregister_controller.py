"""UnregisterController (94): version 0. Forgets a controller that will not come back."""

from __future__ import annotations

from ottla.common.acl import AclOperation, ResourceType
from ottla.controller.registration import handle_unregister_controller
from ottla.protocol.messages.unregister_controller import UnregisterControllerResponse
from ottla.protocol.registry import ApiKey
from ottla.server.api import Listeners, error_with_message
from ottla.server.authorization import Need
from ottla.server.decisions import decided

UNREGISTER_CONTROLLER = decided(
    ApiKey.UNREGISTER_CONTROLLER,
    handle_unregister_controller,
    error_with_message(UnregisterControllerResponse),
    listeners=Listeners.BOTH,
    needs=Need(AclOperation.ALTER, ResourceType.CLUSTER),
    forwarded=True,
)
