"""BrokerHeartbeat (key 63): a broker extends its session, and requests fencing, unfencing or shutdown (KIP-631).

Flexible from the start. 1 reports failed data directories (KIP-858), 2 cordoned ones (KIP-1066).
"""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import BOOL, INT16, INT32, INT64, UUID, array, f, message


@message("0-2", flexible="0+")
class BrokerHeartbeatRequest:
    broker_id: int = f(INT32, "0+")
    broker_epoch: int = f(INT64, "0+", default=-1)
    current_metadata_offset: int = f(INT64, "0+")
    want_fence: bool = f(BOOL, "0+")
    want_shut_down: bool = f(BOOL, "0+")
    offline_log_dirs: list[bytes] = f(array(UUID), "1+", tag=0, ignorable=True)
    cordoned_log_dirs: list[bytes] | None = f(array(UUID), "2+", nullable="2+", tag=1, default=None, ignorable=True)


@message("0-2", flexible="0+")
class BrokerHeartbeatResponse:
    throttle_time_ms: int = f(INT32, "0+")
    error_code: int = f(INT16, "0+")
    is_caught_up: bool = f(BOOL, "0+")
    is_fenced: bool = f(BOOL, "0+", default=True)
    should_shut_down: bool = f(BOOL, "0+")


SPEC = ApiSpec(ApiKey.BROKER_HEARTBEAT, BrokerHeartbeatRequest, BrokerHeartbeatResponse)
