"""InitProducerId (key 22): a producer id for idempotence, or the next epoch of a transactional id.

2 is flexible, 3 lets a producer continue after an error (KIP-360), 4 may return PRODUCER_FENCED, 5
TRANSACTION_ABORTABLE (KIP-890). 6 is two-phase commit (KIP-939), unstable in Apache Kafka 4.4 and not advertised.
"""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import BOOL, INT16, INT32, INT64, STRING, f, message


@message("0-6", flexible="2+")
class InitProducerIdRequest:
    transactional_id: str | None = f(STRING, "0+", nullable="0+", default=None)
    transaction_timeout_ms: int = f(INT32, "0+")
    producer_id: int = f(INT64, "3+", default=-1)
    producer_epoch: int = f(INT16, "3+", default=-1)
    enable_2pc: bool = f(BOOL, "6+")
    keep_prepared_txn: bool = f(BOOL, "6+")


@message("0-6", flexible="2+")
class InitProducerIdResponse:
    throttle_time_ms: int = f(INT32, "0+")
    error_code: int = f(INT16, "0+")
    producer_id: int = f(INT64, "0+", default=-1)
    producer_epoch: int = f(INT16, "0+")
    ongoing_txn_producer_id: int = f(INT64, "6+", default=-1, ignorable=True)
    ongoing_txn_producer_epoch: int = f(INT16, "6+", default=-1, ignorable=True)


SPEC = ApiSpec(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest, InitProducerIdResponse)
