"""`Search`: runs a plan within its budgets and returns matches in order, one at a time.

State changes only between reads. After an interruption the caller can take the matches that were read, the report and a
resume token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from ottla.common.platform.reused_memory import ReusedMemory
from ottla.search.evaluation import compile_filter
from ottla.search.key_ranges import NO_SKIPS, skips_of
from ottla.search.literals import required_clauses
from ottla.search.plan import Plan, write_token
from ottla.search.reading import PartitionReader
from ottla.search.report import BYTES, CANCELLED, END, FAILED, INTERRUPTED, LIMIT, MEMORY, RECORDS, TIME, Report
from ottla.search.scan import Hit, Matcher, Scanned, Unreadable
from ottla.search.source import FETCH_BYTES, TopicSource
from ottla.search.subject import OpenDecoders, Tally, open_decoders
from ottla.search.syntax import Node
from ottla.search.walks import NewestFirst, OldestFirst, Walk
from ottla.search.windows import Lookahead, WindowReader

MAX_PENDING_BYTES = 256 * 1024 * 1024
"""Bound of matches that wait for their turn."""
MAX_UNREADABLE = 1_000
"""Bound of the list of ranges that could not be read."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Where a search stops before the end of its ranges; None is unlimited. Reads are not cut, so it may exceed them by
    one fetch."""

    matches: int | None = None
    records: int | None = None
    bytes: int | None = None
    seconds: float | None = None


class Search:
    """One run of a plan."""

    def __init__(
        self,
        source: TopicSource,
        plan: Plan,
        condition: Node | None,
        budget: Budget,
        monotonic: Callable[[], float],
        on_progress: Callable[[Report], None] = lambda report: None,
        fetch_bytes: int = FETCH_BYTES,
        decoders: OpenDecoders | None = None,
        lookahead: Lookahead | None = None,
    ) -> None:
        """`condition` is the filter of `plan.query`; `decoders` are those of `plan`, with their schemas.

        `on_progress` is called after each read; `lookahead` scans in other processes. A filter that needs certain keys
        first asks for the offsets without them. Raises OperatorError for a decoder without its schema or package,
        KafkaError.
        """
        self._plan = plan
        self._budget = budget
        self._monotonic = monotonic
        self.on_progress = on_progress
        self._tally = Tally()
        decoders = decoders or open_decoders(plan.decoders)
        matcher = Matcher(
            compile_filter(condition), required_clauses(condition, decoders), decoders, self._tally, ReusedMemory()
        )
        skips = skips_of(source, plan.ranges, condition, decoders)
        self._readers: Sequence[PartitionReader]
        if lookahead is None:
            self._readers = [
                PartitionReader(source, *each, matcher, fetch_bytes, skips=skips.get(each[0], NO_SKIPS))
                for each in plan.ranges.items()
            ]
        else:
            self._readers = lookahead.readers = [
                WindowReader(
                    lookahead,
                    plan.newest_first,
                    (source, *each, matcher, fetch_bytes),
                    skips.get(each[0], NO_SKIPS),
                )
                for each in plan.ranges.items()
            ]
        self._walk: Walk = (
            NewestFirst(source, self._readers, plan.before) if plan.newest_first else OldestFirst(self._readers)
        )
        self._matches = self._records = self._skipped = self._bytes = 0
        self._unreadable: list[Unreadable] = []
        self._is_cancelled = False
        self.reason = FAILED
        """The reason for stopping, after `run`."""

    def cancel(self) -> None:
        """Stop `run` before its next read; may be called from another thread."""
        self._is_cancelled = True

    def run(self) -> Iterator[Hit]:
        """Yield the matches; `rest` and `report` are valid after an error. Raises KafkaError, BrokerUnreachable."""
        started = self._monotonic()
        try:
            while (reason := self._reason_to_stop(started)) is None:
                hit = self._walk.take(self._wanted())
                if hit is not None:
                    self._matches += 1
                    yield hit
                elif not self._walk.is_read:
                    self._apply(self._walk.step())
                    self.on_progress(self.report(END))
        except KeyboardInterrupt:
            self.reason = INTERRUPTED
            raise
        self.reason = reason
        if reason not in (END, LIMIT):
            yield from self.rest()

    def rest(self) -> Iterator[Hit]:
        """Yield the matches that were read, without proof that unread records do not precede them."""
        while (wanted := self._wanted()) != 0 and (hit := self._walk.take_any(wanted)) is not None:
            self._matches += 1
            yield hit

    def report(self, reason: str) -> Report:
        """The report if the search ends now for this reason."""
        left = self._walk.left() if reason != END else {}
        return Report(
            self._matches,
            self._records,
            self._skipped,
            self._tally.verified,
            self._bytes,
            self._tally.undecodable,
            self._tally.first_failure,
            self._tally.mismatches,
            tuple(self._unreadable),
            sum(reader.lost for reader in self._readers),
            {partition: (each.start, each.end) for partition, each in self._plan.ranges.items()},
            reason,
            write_token(replace(self._plan, ranges=left, before=self._walk.before)) if left else None,
        )

    def _wanted(self) -> int | None:
        return None if self._budget.matches is None else self._budget.matches - self._matches

    def _apply(self, found: Scanned) -> None:
        self._records += found.records
        self._skipped += found.skipped
        self._bytes += found.size_bytes
        self._unreadable += found.unreadable[: MAX_UNREADABLE - len(self._unreadable)]

    def _reason_to_stop(self, started: float) -> str | None:
        budget = self._budget
        if self._walk.is_done:
            return END
        if self._is_cancelled:
            return CANCELLED
        if self._wanted() == 0:
            return LIMIT
        if budget.records is not None and self._records >= budget.records:
            return RECORDS
        if budget.bytes is not None and self._bytes >= budget.bytes:
            return BYTES
        if budget.seconds is not None and self._monotonic() - started >= budget.seconds:
            return TIME
        return MEMORY if self._walk.pending_bytes > MAX_PENDING_BYTES else None
