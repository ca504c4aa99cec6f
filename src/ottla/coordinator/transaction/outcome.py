"""What a decision on one transactional id comes to."""

from __future__ import annotations

from enum import Enum
from typing import Final

from ottla.common.errors import ErrorCode
from ottla.coordinator.transaction.metadata import TransactionMetadata


class MissingInput(Enum):
    """What a decision can't be made without."""

    PRODUCER_ID = "producer id"
    """The caller gets one that nobody has, and asks again with it."""


NEEDS_PRODUCER_ID: Final = MissingInput.PRODUCER_ID

Decision = TransactionMetadata | ErrorCode | MissingInput
"""The metadata to write, the answer without a write (NONE: all is as asked for already), or what is lacking."""
