"""The streams of examples/streams over a day of page views, compared with the oracle row by row.

The day comes in several runs of all streams, each of which resumes from the checkpoints of the one before; the last run
brings the records after the end of the day. Also, the views are loaded and decoded, and the last one of each reader is
in a snapshot.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from examples.streams.page_views import Day, create_topics, produce
from pyarrow.parquet import ParquetFile
from tests.pipeline.committed import read_committed
from tests.pipeline.page_views.oracle import VIEW_COLUMNS, Oracle, Row, seconds

from ottla.pipeline.load.driver import load
from ottla.pipeline.load.shape import settled_shape
from ottla.pipeline.model.plan import PlanSettings
from ottla.pipeline.sinks.open_table import open_table
from ottla.pipeline.snapshot.run import snapshot, snapshot_plan_settings
from ottla.pipeline.stream.definition import StreamDefinition, read_definition
from ottla.pipeline.stream.run import StreamJob, run_stream
from ottla.pipeline.transform.decode_options import DecodeOptions
from ottla.pipeline.transform.open_format import open_format

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "streams"
USES = ("news-feed", "relevance", "top-pages", "security", "monitoring", "reporting")
EXPECTED: dict[str, Callable[[Oracle], set[Row]]] = {
    "news-feed": Oracle.activity,
    "relevance": Oracle.relevance,
    "top-pages": Oracle.top_pages,
    "security": Oracle.alerts,
    "monitoring": Oracle.monitoring,
    "reporting": Oracle.reporting,
}
Say = Callable[[str], None]


@dataclass
class Outcome:
    """Result of one use. `doubled`, `missing` and `wrong` are rows: duplicate, missing, and unexpected ones."""

    name: str
    records: int = 0
    seconds: float = 0.0
    late: int = 0
    rows: int = 0
    doubled: int = 0
    missing: list[Any] = field(default_factory=list)
    wrong: list[Any] = field(default_factory=list)

    @property
    def is_equal(self) -> bool:
        return self.rows > 0 and not (self.doubled or self.missing or self.wrong)

    def compare(self, found: Iterable[Row], expected: set[Row]) -> None:
        counts = Counter(found)
        self.rows = counts.total()
        self.doubled = self.rows - len(counts)
        self.missing = sorted(expected - counts.keys())
        self.wrong = sorted(counts.keys() - expected)


@dataclass
class Trial:
    """Runs on a given broker and session; tables and checkpoints are in `lake`."""

    spark: Any
    bootstrap_servers: str
    lake: Path
    say: Say = print

    def run(self, day: Day, runs: int) -> list[Outcome]:
        """Produce the day in several parts, and the records after it, and run all streams after each."""
        oracle = Oracle()
        outcomes = {name: Outcome(name) for name in (*USES, "load", "snapshot")}
        definitions = {name: read_definition(EXAMPLES / f"{name}.toml") for name in USES}
        create_topics(self.bootstrap_servers, "views", "impressions", "access", "activity", "alerts")
        for number, (part, same) in enumerate(zip(day.parts(runs), day.parts(runs), strict=True), start=1):
            counts = produce(self.bootstrap_servers, part)
            self.say(f"run {number}: produced " + ", ".join(f"{count:,} {topic}" for topic, count in counts.items()))
            for name, definition in definitions.items():
                self._stream(definition, outcomes[name])
                self.say(f"run {number}: {name}, {outcomes[name].seconds:.0f} s so far")
            self._snapshot(outcomes["snapshot"])
            oracle.run(same)
        for name, definition in definitions.items():
            outcomes[name].compare(self.results(definition), EXPECTED[name](oracle))
        self._load(outcomes["load"], oracle)
        outcomes["snapshot"].compare(self.rows("last-views", "key", "value"), set(oracle.latest.items()))
        return list(outcomes.values())

    def _stream(self, definition: StreamDefinition, outcome: Outcome) -> None:
        table = definition.result.table
        job = StreamJob(
            definition,
            self.bootstrap_servers,
            self.lake / ".streams" / definition.name,
            once=True,
            open_table=(lambda: open_table(self.lake / table)) if table else None,
        )
        summary = run_stream(job, self._session)
        assert not summary.dead_letters
        outcome.records += summary.rows_in
        outcome.seconds += summary.seconds
        outcome.late += summary.late_rows

    def _session(self) -> Any:
        return nullcontext(self.spark)

    def results(self, definition: StreamDefinition) -> Iterator[Row]:
        """The rows of a stream in the form of the oracle."""
        if definition.result.topic:
            for message in read_committed(self.bootstrap_servers, definition.result.topic):
                row = json.loads(message.value())
                assert row[definition.result.key].encode() == message.key()
                times = {name: seconds(row[name]) for name in ("since", "until")}
                yield tuple((row | times).values())
        else:
            yield from map(plain, self.rows(definition.result.table))

    def rows(self, table: str, *columns: str) -> Iterator[Row]:
        """Rows of a table, read without Spark: these columns or all."""
        for path in open_table(self.lake / table).files():
            for batch in ParquetFile(path).iter_batches(columns=list(columns) or None):
                names = columns or batch.schema.names
                yield from zip(*(batch.column(name).to_pylist() for name in names), strict=True)

    def _snapshot(self, outcome: Outcome) -> None:
        started = time.monotonic()
        target = open_table(self.lake / "last-views")
        shape = settled_shape(target, None, history=False)
        target = open_table(self.lake / "last-views", partition_by=shape.partition_columns)
        settings = snapshot_plan_settings()
        summary = snapshot(["views"], target, self.bootstrap_servers, self._session, settings, shape)
        assert not summary.dead_letters
        outcome.records += summary.records
        outcome.seconds += time.monotonic() - started

    def _load(self, outcome: Outcome, oracle: Oracle) -> None:
        """Load and decode all views; the sum of the hashes of their rows."""
        started = time.monotonic()
        target = open_table(self.lake / "views")
        summary = load(
            ["views"],
            target,
            self.bootstrap_servers,
            self._session,
            PlanSettings(),
            value_format=open_format(DecodeOptions("json", schema=EXAMPLES / "views.json")),
        )
        outcome.records, outcome.seconds = summary.rows, time.monotonic() - started
        rows = total = 0
        for row in map(plain, self.rows("views", *VIEW_COLUMNS)):
            rows, total = rows + 1, total + hash(row)
        outcome.compare([(rows, total)], {(oracle.counts["views"], oracle.decoded)})


def plain(row: Row) -> Row:
    """Times as seconds, fractions of seconds as whole microseconds."""
    return tuple(
        int(value.replace(tzinfo=value.tzinfo or UTC).timestamp())
        if isinstance(value, datetime)
        else round(value * 1e6)
        if isinstance(value, float)
        else value
        for value in row
    )
