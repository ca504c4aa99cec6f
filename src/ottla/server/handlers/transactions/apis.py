"""API table of this package."""

from __future__ import annotations

from ottla.server.handlers.transactions.add_offsets_to_txn import ADD_OFFSETS_TO_TXN
from ottla.server.handlers.transactions.add_partitions_to_txn import ADD_PARTITIONS_TO_TXN
from ottla.server.handlers.transactions.context import TransactionContext
from ottla.server.handlers.transactions.describe_transactions import DESCRIBE_TRANSACTIONS
from ottla.server.handlers.transactions.end_txn import END_TXN
from ottla.server.handlers.transactions.init_producer_id import INIT_PRODUCER_ID
from ottla.server.handlers.transactions.list_transactions import LIST_TRANSACTIONS
from ottla.server.handlers.transactions.write_txn_markers import WRITE_TXN_MARKERS
from ottla.server.requests.api import Api

TRANSACTION_APIS: tuple[Api[TransactionContext], ...] = (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    INIT_PRODUCER_ID,
    LIST_TRANSACTIONS,
    WRITE_TXN_MARKERS,
)
