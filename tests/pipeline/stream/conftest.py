"""Topics of one broker, and streams over them in the session of all pipeline tests."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra `pipeline`")

from ottla.pipeline.sinks.open_table import open_table
from ottla.pipeline.sql.query import read_table
from ottla.pipeline.stream.definition import parse_definition
from ottla.pipeline.stream.progress import BatchProgress, StreamSummary
from ottla.pipeline.stream.run import StreamJob, default_checkpoint, run_stream

from ..topics import new_topic, produce

Send = Callable[..., None]


@pytest.fixture
def make_topic(bootstrap: str) -> Callable[[], str]:
    def make(partitions: int = 2) -> str:
        return new_topic(bootstrap, partitions)

    return make


@pytest.fixture
def topic(make_topic: Callable[[], str]) -> str:
    return make_topic()


@pytest.fixture
def send(bootstrap: str, topic: str) -> Send:
    """Produce values in their order, as JSON unless they are bytes, one partition after the other."""

    def run(values: Iterable[bytes | Mapping[str, Any]], to: str = topic) -> None:
        stored = (value if isinstance(value, bytes) else json.dumps(value).encode() for value in values)
        produce(bootstrap, to, ({"value": value, "partition": number % 2} for number, value in enumerate(stored)))

    return run


class Streams:
    """Runs definitions until they have read all available records."""

    def __init__(self, spark: Any, bootstrap: str, directory: Path) -> None:
        self.spark = spark
        self.bootstrap = bootstrap
        self.directory = directory
        self.batches: list[BatchProgress] = []

    def run(self, text: str, before: Callable[[], object] = lambda: None, **options: Any) -> StreamSummary:
        """`DIR` in the text is a directory of the test; `before` is called after all checks, before Spark starts."""

        def open_session() -> AbstractContextManager[Any]:
            before()
            return nullcontext(self.spark)

        definition = parse_definition(text.replace("DIR", str(self.directory)), self.directory)
        checkpoint = options.pop("checkpoint", None)
        if checkpoint is None:
            checkpoint = default_checkpoint(definition) if definition.result.table else self.directory / "checkpoint"
        job = StreamJob(definition, self.bootstrap, checkpoint, once=True, **options)
        return run_stream(job, open_session, self.batches.append)

    def rows(self, name: str = "table") -> list[dict[str, Any]]:
        """Rows of a table in the test's directory."""
        return [row.asDict() for row in read_table(self.spark, open_table(self.directory / name)).collect()]


@pytest.fixture
def streams(spark: Any, bootstrap: str, tmp_path: Path) -> Streams:
    return Streams(spark, bootstrap, tmp_path)
