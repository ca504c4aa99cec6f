"""Typed settings of the transaction coordinator; names and defaults are those of Apache Kafka 4.x.

Each shard gets a callable that returns the current settings, so a dynamic change applies to the next request.
"""

from __future__ import annotations

from typing import NamedTuple


class TransactionCoordinatorConfig(NamedTuple):
    """`transaction.*` and `transactional.id.*` settings; times in milliseconds, sizes in bytes."""

    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 7 * 24 * 60 * 60 * 1000
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = 10_000
    transaction_remove_expired_transaction_cleanup_interval_ms: int = 3_600_000
    max_bytes: int = 256 * 1024 * 1024
    """`transaction.coordinator.max.bytes`: memory limit for all ids and open transactions of a broker (`memory`)."""
