"""ControllerRegistration (70): version 0, on the controller's listener (KIP-919)."""

from __future__ import annotations

from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.controller.registration import handle_controller_registration
from ottla.protocol.messages.controller_registration import (
    ControllerRegistrationResponse,
)
from ottla.protocol.registry import ApiKey
from ottla.server.requests.api import error_with_message
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.controller_requests import controller_api

CONTROLLER_REGISTRATION = controller_api(
    ApiKey.CONTROLLER_REGISTRATION,
    lambda image, message, controller: handle_controller_registration(image, message),
    error_with_message(ControllerRegistrationResponse),
    needs=RequiredPermission(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER),
)
