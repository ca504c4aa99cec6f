"""Progress of a batch of a stream, and the summary of a run."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from ottla.pipeline.datasource.stream import IDS


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """`watermark`: event time (ISO, UTC) before which rows are late, "" without one. `lag`: offsets in the topics after
    this batch; markers of transactions count."""

    batch: int
    rows_in: int
    rows_out: int
    dead_letters: int
    late_rows: int
    """Rows before the watermark, which are in no result."""
    lag: int
    watermark: str
    seconds: float

    @property
    def rows_per_s(self) -> float:
        return self.rows_in / self.seconds if self.seconds > 0 else 0.0

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"rows_per_s": round(self.rows_per_s)}


Observe = Callable[[BatchProgress], None]
"""Receives the progress of each batch."""


@dataclass(slots=True)
class StreamSummary:
    """Result of one run of a stream; `dead_letter_table` contains its bad records."""

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


def batch_progress(spark_progress: Any, rows_out: int, dead_letters: int) -> BatchProgress:
    """Convert Spark's report of a batch (`StreamingQueryProgress`)."""
    return BatchProgress(
        batch=spark_progress.batchId,
        rows_in=spark_progress.numInputRows,
        rows_out=rows_out,
        dead_letters=dead_letters,
        late_rows=sum(operator.numRowsDroppedByWatermark for operator in spark_progress.stateOperators),
        lag=sum(_lag(source.endOffset, source.latestOffset) for source in spark_progress.sources),
        watermark=(spark_progress.eventTime or {}).get("watermark", ""),
        seconds=(spark_progress.durationMs or {}).get("triggerExecution", 0) / 1000,
    )


def _lag(end: str | None, latest: str | None) -> int:
    """Offsets between two positions of one source, in its own notation; 0 if a position is missing."""
    if not end or not latest:
        return 0
    reached = json.loads(end)
    return sum(
        max(offset - reached.get(topic, {}).get(partition, 0), 0)
        for topic, partitions in json.loads(latest).items()
        if topic != IDS
        for partition, offset in partitions.items()
    )
