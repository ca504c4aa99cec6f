"""Preparation of a decision with many records over several turns of the loop, so that clients are served in between.

Invariants: other operations wait until the records are submitted, since they are decided on the image with these
records. The records stay one submission: all or none of them are in the log. If the log changed meanwhile, by another
term of leadership or a change of voters, the operation is decided again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.platform.clock import Scheduler
from ottla.controller.result import RECORDS_PER_TURN
from ottla.metadata.log import MetadataLog, PreparedRecords
from ottla.metadata.records import ApiMessageAndVersion

Prepared = Callable[[PreparedRecords | None, KafkaError | None], None]
"""Called once: with the records, with the error of the operation, or with neither to decide the operation again."""


class Preparation:
    """Records of one decision, and the operations that wait for it."""

    __slots__ = ("_metadata_log", "_next_offset", "_records", "_scheduler", "waiting")

    def __init__(
        self, metadata_log: MetadataLog, scheduler: Scheduler, records: Sequence[ApiMessageAndVersion]
    ) -> None:
        """The records were decided in this turn."""
        self._metadata_log = metadata_log
        self._scheduler = scheduler
        self._records = PreparedRecords(metadata_log.latest, records)
        self._next_offset = metadata_log.next_offset
        self.waiting: list[Callable[[], None]] = []
        """Later operations, in order; each blocks the connection of its request."""

    def begin(self, done: Prepared) -> None:
        """Prepare records in the next turns; `done` may be called before this returns."""
        self._scheduler.call_soon(self._prepare_some, done)

    def _prepare_some(self, done: Prepared) -> None:
        log = self._metadata_log
        if log.latest is not self._records.base or log.next_offset != self._next_offset:
            done(None, None)
            return
        try:
            count = self._records.prepare(RECORDS_PER_TURN)
        except KafkaError as error:
            done(None, error)
            return
        except Exception:  # a defect: the operations that wait must not wait for ever
            done(None, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The records do not fit the metadata."))
            raise
        if count:  # the submission, which takes longer, has a turn of its own
            self.begin(done)
        else:
            done(self._records, None)
