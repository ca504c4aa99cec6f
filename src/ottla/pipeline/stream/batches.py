"""One batch of a stream, from the rows of the query to results that are there.

What Spark calls for each micro-batch (`foreachBatch`). A batch that is called again after a restart is run as a whole
again, since Spark keeps the state of a query by what its tasks write, but its results are added once only.

**Invariants:** the rows of a batch are computed once and as a whole before anything is done with them; dead letters are
committed before the results, so that a batch whose results are there has left no letter behind.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ottla.common.errors import OperatorError, OttlaError
from ottla.pipeline.load.tasks import task_failure
from ottla.pipeline.model.failure import refusal
from ottla.pipeline.stream.definition import RESULT_VIEW
from ottla.pipeline.stream.letters import DeadLetters
from ottla.pipeline.stream.results import Results
from ottla.pipeline.stream.topic_results import run_whole


@dataclass(slots=True)
class BatchRunner:
    """`sql`: a statement over RESULT_VIEW, the rows of a batch, or nothing."""

    results: Results
    letters: DeadLetters
    sql: str = ""
    failure: OttlaError | None = None
    """Why a batch failed; Spark itself tells it with the stack traces of two languages."""
    rows: dict[int, int] = field(default_factory=dict)
    """Of the results of each batch, until someone takes the number away."""

    def __call__(self, frame: Any, batch: int) -> None:
        """Raises OttlaError."""
        try:
            self.rows[batch] = self._run(frame, batch)
        except OttlaError as error:
            self._fail(error)
        except Exception as error:  # Spark wraps whatever a worker raised
            what = f"batch {batch} of the stream"
            self._fail(task_failure(f"{what} failed", error, f"{what}: the directory {self.results.directory}"), error)

    def _run(self, frame: Any, batch: int) -> int:
        spark = frame.sparkSession
        if self.results.holds(batch):
            run_whole(frame)
            self.letters.commit(spark, batch)
            return 0
        if self.sql:
            frame.persist()
        try:
            self.results.prepare(self._shaped(frame), batch)
        finally:
            if self.sql:
                frame.unpersist()
        self.letters.commit(spark, batch)
        return self.results.commit(spark, batch)

    def _shaped(self, frame: Any) -> Any:
        if not self.sql:
            return frame
        run_whole(frame)  # the statement may ask for a part of it only
        return shape(frame, self.sql)

    def _fail(self, error: OttlaError, cause: Exception | None = None) -> None:
        self.results.discard()
        self.failure = error
        raise error from cause


def shape(frame: Any, sql: str) -> Any:
    """The statement of `[result] sql` over the rows of a batch. Raises OperatorError."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    frame.createOrReplaceTempView(RESULT_VIEW)
    try:
        return frame.sparkSession.sql(sql)
    except (PySparkException, Py4JError) as error:
        raise OperatorError(f"[result] sql: Spark refused the statement: {refusal(error)}") from error
