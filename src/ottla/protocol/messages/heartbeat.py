"""Heartbeat (key 12): extend the session of a classic group member; the response says whether it has to rejoin.

1 adds the throttle time, 3 static membership (KIP-345), 4 is flexible.
"""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import INT16, INT32, STRING, f, message


@message("0-4", flexible="4+")
class HeartbeatRequest:
    group_id: str = f(STRING, "0+")
    generation_id: int = f(INT32, "0+")
    member_id: str = f(STRING, "0+")
    group_instance_id: str | None = f(STRING, "3+", nullable="3+", default=None)


@message("0-4", flexible="4+")
class HeartbeatResponse:
    throttle_time_ms: int = f(INT32, "1+", ignorable=True)
    error_code: int = f(INT16, "0+")


SPEC = ApiSpec(ApiKey.HEARTBEAT, HeartbeatRequest, HeartbeatResponse)
