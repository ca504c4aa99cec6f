"""States of a transactional id, with their numbers in the log and the names for tools."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum


class TransactionState(IntEnum):
    """State numbers as in the log.

    EMPTY to COMPLETE_ABORT are written. Apache Kafka uses the other two while it removes an id or fences its producer.
    """

    EMPTY = 0
    """No transaction since the producer was initialized."""
    ONGOING = 1
    PREPARE_COMMIT = 2
    """Decided: the markers are being written."""
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    """All markers are written."""
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """Name in DescribeTransactions and ListTransactions, e.g. `PrepareCommit`."""
        return LABELS[self]


LABELS: Mapping[TransactionState, str] = {
    state: "".join(word.capitalize() for word in state.name.split("_")) for state in TransactionState
}

STATES_BY_LABEL: Mapping[str, TransactionState] = {label: state for state, label in LABELS.items()}

_EMPTY, _ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
_PREPARE_COMMIT, _PREPARE_ABORT = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
_COMPLETE_COMMIT, _COMPLETE_ABORT = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT

PREPARED = frozenset({_PREPARE_COMMIT, _PREPARE_ABORT})
COMPLETED = frozenset({_COMPLETE_COMMIT, _COMPLETE_ABORT})
IDLE = COMPLETED | {_EMPTY}
"""No transaction is open; the id expires if it stays idle."""
OPEN = PREPARED | {_ONGOING}

VALID_PREVIOUS_STATES: Mapping[TransactionState, frozenset[TransactionState]] = {
    _EMPTY: IDLE,
    _ONGOING: IDLE | {_ONGOING},
    _PREPARE_COMMIT: frozenset({_ONGOING}),
    _PREPARE_ABORT: IDLE | {_ONGOING},
    _COMPLETE_COMMIT: frozenset({_PREPARE_COMMIT}),
    _COMPLETE_ABORT: frozenset({_PREPARE_ABORT}),
}
"""Valid predecessors of each written state. An abort without transaction (from IDLE) is one of transactions v2."""
