"""ControllerRegistration (key 70): a controller's endpoints and supported features (KIP-919)."""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import BOOL, INT16, INT32, STRING, UINT16, UUID, array, f, message, struct


@struct
class ControllerListener:
    name: str = f(STRING, "0+")
    host: str = f(STRING, "0+")
    port: int = f(UINT16, "0+")
    security_protocol: int = f(INT16, "0+")


@struct
class ControllerFeatureRange:
    name: str = f(STRING, "0+")
    min_supported_version: int = f(INT16, "0+")
    max_supported_version: int = f(INT16, "0+")


@message("0", flexible="0+")
class ControllerRegistrationRequest:
    controller_id: int = f(INT32, "0+")
    incarnation_id: bytes = f(UUID, "0+")
    zk_migration_ready: bool = f(BOOL, "0+")
    listeners: list[ControllerListener] = f(array(ControllerListener), "0+")
    features: list[ControllerFeatureRange] = f(array(ControllerFeatureRange), "0+")


@message("0", flexible="0+")
class ControllerRegistrationResponse:
    throttle_time_ms: int = f(INT32, "0+")
    error_code: int = f(INT16, "0+")
    error_message: str | None = f(STRING, "0+", nullable="0+", default=None)


SPEC = ApiSpec(ApiKey.CONTROLLER_REGISTRATION, ControllerRegistrationRequest, ControllerRegistrationResponse)
