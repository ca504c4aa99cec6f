"""BrokerRegistration (key 62): a broker joins the cluster as a new incarnation (KIP-631). Flexible from the start.

2 adds log directories (KIP-858). 3 adds the broker epoch of the previous clean shutdown, by which the controller knows
whether the replicas of this broker may have lost unflushed records (KIP-966). 4 allows features with the lowest level
0.
"""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import BOOL, INT16, INT32, INT64, STRING, UINT16, UUID, array, f, message, struct


@struct
class RegistrationListener:
    name: str = f(STRING, "0+")
    host: str = f(STRING, "0+")
    port: int = f(UINT16, "0+")
    security_protocol: int = f(INT16, "0+")


@struct
class RegistrationFeature:
    name: str = f(STRING, "0+")
    min_supported_version: int = f(INT16, "0+")
    max_supported_version: int = f(INT16, "0+")


@message("0-4", flexible="0+")
class BrokerRegistrationRequest:
    broker_id: int = f(INT32, "0+")
    cluster_id: str = f(STRING, "0+")
    incarnation_id: bytes = f(UUID, "0+")
    listeners: list[RegistrationListener] = f(array(RegistrationListener), "0+")
    features: list[RegistrationFeature] = f(array(RegistrationFeature), "0+")
    rack: str | None = f(STRING, "0+", nullable="0+", default="")
    is_migrating_zk_broker: bool = f(BOOL, "1+")
    log_dirs: list[bytes] = f(array(UUID), "2+")
    previous_broker_epoch: int = f(INT64, "3+", default=-1)


@message("0-4", flexible="0+")
class BrokerRegistrationResponse:
    throttle_time_ms: int = f(INT32, "0+")
    error_code: int = f(INT16, "0+")
    broker_epoch: int = f(INT64, "0+", default=-1)


SPEC = ApiSpec(ApiKey.BROKER_REGISTRATION, BrokerRegistrationRequest, BrokerRegistrationResponse)
