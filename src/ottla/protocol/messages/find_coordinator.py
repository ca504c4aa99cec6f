"""FindCoordinator (key 10): the broker that coordinates a group, a transactional id or a share group.

1 adds the key type, 3 is flexible, 4 takes several keys at once (KIP-699), 5 may return TRANSACTION_ABORTABLE
(KIP-890), 6 supports share groups (KIP-932).
"""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import INT8, INT16, INT32, STRING, array, f, message, struct


@message("0-6", flexible="3+")
class FindCoordinatorRequest:
    key: str = f(STRING, "0-3")
    key_type: int = f(INT8, "1+")
    coordinator_keys: list[str] = f(array(STRING), "4+")


@struct
class Coordinator:
    key: str = f(STRING, "0+")
    node_id: int = f(INT32, "0+")
    host: str = f(STRING, "0+")
    port: int = f(INT32, "0+")
    error_code: int = f(INT16, "0+")
    error_message: str | None = f(STRING, "0+", nullable="0+", default=None)


@message("0-6", flexible="3+")
class FindCoordinatorResponse:
    throttle_time_ms: int = f(INT32, "1+", ignorable=True)
    error_code: int = f(INT16, "0-3", ignorable=True)
    error_message: str | None = f(STRING, "1-3", nullable="1-3", default=None, ignorable=True)
    node_id: int = f(INT32, "0-3", ignorable=True)
    host: str = f(STRING, "0-3", ignorable=True)
    port: int = f(INT32, "0-3", ignorable=True)
    coordinators: list[Coordinator] = f(array(Coordinator), "4+", ignorable=True)


SPEC = ApiSpec(ApiKey.FIND_COORDINATOR, FindCoordinatorRequest, FindCoordinatorResponse)
