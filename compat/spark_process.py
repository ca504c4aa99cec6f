"""A Spark session of a different version, in a separate process: the client of spark/driver.py."""

from __future__ import annotations

import json
import select
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

START_S = 120.0
JOB_S = 180.0
DRIVER = Path(__file__).parent / "spark" / "driver.py"


class Record(NamedTuple):
    """One record from Spark's connector; `headers` is None if the record has none or the query did not include them."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: str | None
    value: str | None
    headers: tuple[tuple[str, str | None], ...] | None = None


class SparkError(Exception):
    """The exception of a job in the other process."""


class SparkProcess:
    """A session that runs one job at a time; after `kill`, create another for a driver failure."""

    def __init__(self, python: Path, jars: Sequence[Path], log: Path) -> None:
        self._log = log
        command = [str(python), str(DRIVER), ",".join(map(str, jars))]
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
            )
        self.version = str(self._answer(START_S))

    def read(self, **options: str) -> list[Record]:
        """Returns the records of a batch query, sorted."""
        return records(self._do("read", options=options)["rows"])

    def partitions_read(self, **options: str) -> tuple[list[Record], int]:
        """Returns the records of a batch query, and its number of Spark partitions."""
        answer = self._do("read", options=options)
        return records(answer["rows"]), int(answer["partitions"])

    def write(self, rows: Sequence[Sequence[Any]], **options: str) -> None:
        """Write rows of topic, partition, key, value, headers."""
        self._do("write", records=rows, options=options)

    def run(self, options: Mapping[str, str], checkpoint: Path, sink: Mapping[str, str]) -> list[int]:
        """Run a stream over all available records; returns the row count of its batches."""
        batches = self._do("run", options=options, checkpoint=str(checkpoint), sink=sink)
        return [int(count) for count in batches]

    def start(self, options: Mapping[str, str], checkpoint: Path, sink: Mapping[str, str]) -> str:
        """Start a continuous stream; returns its id."""
        trigger = {"processingTime": "0 seconds"}
        return str(self._do("start", options=options, checkpoint=str(checkpoint), sink=sink, trigger=trigger))

    def process(self, query: str) -> None:
        """Wait until a stream has processed all available records."""
        self._do("process", id=query)

    def stop(self, query: str) -> None:
        self._do("stop", id=query)

    def stored(self, path: Path) -> list[Record]:
        """Returns the output of a stream, sorted."""
        return records(self._do("stored", path=str(path)))

    def close(self) -> None:
        """End the session and its process."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(60)
        finally:
            self._process.kill()

    def _do(self, job: str, **arguments: Any) -> Any:
        if self._process.stdin is None:
            raise RuntimeError("the process has no input")
        self._process.stdin.write(json.dumps({"job": job, **arguments}).encode() + b"\n")
        self._process.stdin.flush()
        return self._answer(JOB_S)

    def _answer(self, timeout_s: float) -> Any:
        """Returns the next line, the response to the only request in flight."""
        if self._process.stdout is None:
            raise RuntimeError("the process has no output")
        ready, _, _ = select.select([self._process.stdout], [], [], timeout_s)
        line = self._process.stdout.readline() if ready else b""
        if not line:
            why = "ended" if self._process.poll() is not None else f"gave no answer within {timeout_s:g} s"
            self._process.kill()
            raise AssertionError(f"Spark {why}:\n{self._log.read_text()[-4000:]}")
        answer = json.loads(line)
        if "error" in answer:
            raise SparkError(answer["error"])
        return answer["result"]


def records(rows: Sequence[Sequence[Any]]) -> list[Record]:
    """Returns records sorted by partition and offset."""
    made = [
        Record(*row[:7], None if row[7] is None else tuple((str(name), value) for name, value in row[7]))
        for row in rows
    ]
    return sorted(made, key=lambda record: record[:3])
