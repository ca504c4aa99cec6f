"""Outcome of a decision on one transactional id."""

from __future__ import annotations

from enum import Enum
from typing import Final

from ottla.common.errors import ErrorCode
from ottla.coordinator.transaction.metadata import TransactionMetadata


class MissingInput(Enum):
    """Inputs that a decision may lack."""

    PRODUCER_ID = "producer id"
    """The caller allocates an unused one and retries with it."""


NEEDS_PRODUCER_ID: Final = MissingInput.PRODUCER_ID

Decision = TransactionMetadata | ErrorCode | MissingInput
"""The metadata to write, the response without a write (NONE: already done), or the missing input."""
