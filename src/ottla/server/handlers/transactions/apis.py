"""API table of this package."""

from __future__ import annotations

from ottla.protocol.registry import ApiKey
from ottla.server.handlers.transactions.context import TransactionContext
from ottla.server.requests.api import ApiRow

TRANSACTION_APIS: tuple[ApiRow[TransactionContext], ...] = (
    ApiRow(ApiKey.ADD_OFFSETS_TO_TXN, "ottla.server.handlers.transactions.add_offsets_to_txn"),
    ApiRow(ApiKey.ADD_PARTITIONS_TO_TXN, "ottla.server.handlers.transactions.add_partitions_to_txn"),
    ApiRow(ApiKey.DESCRIBE_TRANSACTIONS, "ottla.server.handlers.transactions.describe_transactions"),
    ApiRow(ApiKey.END_TXN, "ottla.server.handlers.transactions.end_txn"),
    ApiRow(ApiKey.INIT_PRODUCER_ID, "ottla.server.handlers.transactions.init_producer_id"),
    ApiRow(ApiKey.LIST_TRANSACTIONS, "ottla.server.handlers.transactions.list_transactions"),
    ApiRow(ApiKey.WRITE_TXN_MARKERS, "ottla.server.handlers.transactions.write_txn_markers", throttled=False),
)
