"""Keys and values of the records in `__transaction_state`, as `kafka-dump-log --transaction-log-decoder` reads them.

A key is the record type (16 bits, 0) and the body; a value is its version (16 bits) and the body, or null for a
tombstone. Version 1 has the fields that transactions v2 need to answer a retried request (KIP-890).
"""

from __future__ import annotations

from ottla.protocol.schema import INT8, INT16, INT32, INT64, STRING, array, f, message, struct


@message("0", api_key=0)
class TransactionLogKey:
    transactional_id: str = f(STRING, "0")


@struct
class PartitionsSchema:
    topic: str = f(STRING, "0+")
    partition_ids: list[int] = f(array(INT32), "0+")


@message("0-1", flexible="1+", api_key=0)
class TransactionLogValue:
    producer_id: int = f(INT64, "0+")
    previous_producer_id: int = f(INT64, "1+", tag=0, default=-1)
    next_producer_id: int = f(INT64, "1+", tag=1, default=-1)
    producer_epoch: int = f(INT16, "0+")
    next_producer_epoch: int = f(INT16, "1+", tag=3, default=-1)
    transaction_timeout_ms: int = f(INT32, "0+")
    transaction_status: int = f(INT8, "0+")
    transaction_partitions: list[PartitionsSchema] | None = f(array(PartitionsSchema), "0+", nullable="0+")
    transaction_last_update_timestamp_ms: int = f(INT64, "0+")
    transaction_start_timestamp_ms: int = f(INT64, "0+")
    client_transaction_version: int = f(INT16, "1+", tag=2)
