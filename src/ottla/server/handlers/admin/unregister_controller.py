"""UnregisterController (94): version 0. Removes a controller that will not return."""

from __future__ import annotations

from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.controller.registration import handle_unregister_controller
from ottla.protocol.messages.unregister_controller import UnregisterControllerResponse
from ottla.protocol.registry import ApiKey
from ottla.server.requests.api import error_with_message
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.controller_requests import controller_api

UNREGISTER_CONTROLLER = controller_api(
    ApiKey.UNREGISTER_CONTROLLER,
    handle_unregister_controller,
    error_with_message(UnregisterControllerResponse),
    needs=RequiredPermission(AclOperation.ALTER, ResourceType.CLUSTER),
    forwarded=True,
)
