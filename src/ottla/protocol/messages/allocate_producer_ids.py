"""AllocateProducerIds (key 67): allocate a block of producer ids for a broker (KIP-730). Flexible from the start."""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import INT16, INT32, INT64, f, message


@message("0", flexible="0+")
class AllocateProducerIdsRequest:
    broker_id: int = f(INT32, "0+")
    broker_epoch: int = f(INT64, "0+", default=-1)


@message("0", flexible="0+")
class AllocateProducerIdsResponse:
    throttle_time_ms: int = f(INT32, "0+")
    error_code: int = f(INT16, "0+")
    producer_id_start: int = f(INT64, "0+")
    producer_id_len: int = f(INT32, "0+")


SPEC = ApiSpec(ApiKey.ALLOCATE_PRODUCER_IDS, AllocateProducerIdsRequest, AllocateProducerIdsResponse)
