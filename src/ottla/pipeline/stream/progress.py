"""What a batch of a stream did, and all of a run together."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from ottla.pipeline.datasource.stream import IDS


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """`watermark`: event time (ISO, UTC) behind which rows are late, "" without one. `lag`: offsets that the topics
    have behind this batch; markers of transactions count."""

    batch: int
    rows_in: int
    rows_out: int
    dead_letters: int
    late_rows: int
    """Those that came behind the watermark, and are in no result."""
    lag: int
    watermark: str
    seconds: float

    @property
    def rows_per_s(self) -> float:
        return self.rows_in / self.seconds if self.seconds > 0 else 0.0

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"rows_per_s": round(self.rows_per_s)}


Observe = Callable[[BatchProgress], None]
"""Hears of each batch."""


@dataclass(slots=True)
class StreamSummary:
    """What one run of a stream did; `dead_letter_table` is where its bad records went."""

    name: str
    result: str
    batches: int = 0
    rows_in: int = 0
    rows_out: int = 0
    dead_letters: int = 0
    late_rows: int = 0
    lag: int = 0
    watermark: str = ""
    seconds: float = 0.0
    dead_letter_table: str = ""

    def add(self, batch: BatchProgress) -> None:
        self.batches += 1
        self.rows_in += batch.rows_in
        self.rows_out += batch.rows_out
        self.dead_letters += batch.dead_letters
        self.late_rows += batch.late_rows
        self.lag = batch.lag
        self.watermark = batch.watermark or self.watermark

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def batch_progress(told: Any, rows_out: int, dead_letters: int) -> BatchProgress:
    """From what Spark tells of a batch (`StreamingQueryProgress`)."""
    return BatchProgress(
        batch=told.batchId,
        rows_in=told.numInputRows,
        rows_out=rows_out,
        dead_letters=dead_letters,
        late_rows=sum(operator.numRowsDroppedByWatermark for operator in told.stateOperators),
        lag=sum(_lag(source.endOffset, source.latestOffset) for source in told.sources),
        watermark=(told.eventTime or {}).get("watermark", ""),
        seconds=(told.durationMs or {}).get("triggerExecution", 0) / 1000,
    )


def _lag(end: str | None, latest: str | None) -> int:
    """Offsets between two places of one source, as it writes them; 0 where it tells none."""
    if not end or not latest:
        return 0
    reached = json.loads(end)
    return sum(
        max(offset - reached.get(topic, {}).get(partition, 0), 0)
        for topic, partitions in json.loads(latest).items()
        if topic != IDS
        for partition, offset in partitions.items()
    )
