"""AddOffsetsToTxn (key 25): add a group's offsets to a transaction before committing them (KIP-98).

3 is flexible, 4 may return TRANSACTION_ABORTABLE (KIP-890).
"""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import INT16, INT32, INT64, STRING, f, message


@message("0-4", flexible="3+")
class AddOffsetsToTxnRequest:
    transactional_id: str = f(STRING, "0+")
    producer_id: int = f(INT64, "0+")
    producer_epoch: int = f(INT16, "0+")
    group_id: str = f(STRING, "0+")


@message("0-4", flexible="3+")
class AddOffsetsToTxnResponse:
    throttle_time_ms: int = f(INT32, "0+")
    error_code: int = f(INT16, "0+")


SPEC = ApiSpec(ApiKey.ADD_OFFSETS_TO_TXN, AddOffsetsToTxnRequest, AddOffsetsToTxnResponse)
