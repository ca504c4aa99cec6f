"""One micro-batch of a stream: from the rows of the query to committed results.

Spark calls `BatchRunner` for each batch (`foreachBatch`). It applies the `[result] sql` statement, if there is one.
Then it prepares the results, commits the dead letters, and commits the results to the table or topic.

After a restart, Spark may pass a batch again. Its rows are computed again completely, since Spark stores the state of
a query in the output of its tasks. Results that are already committed are not added again.

**Invariants:** the rows of a batch are computed once and as a whole before they are used; dead letters are
committed before the results, so the dead letters of a committed batch are complete.

Not here: the start of the query (`run`), and storage of the results (`results`).
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
    """`sql`: a statement over RESULT_VIEW, the rows of a batch; empty for none."""

    results: Results
    letters: DeadLetters
    sql: str = ""
    failure: OttlaError | None = None
    """The error of a batch; Spark itself reports it with the stack traces of two languages."""
    rows: dict[int, int] = field(default_factory=dict)
    """Number of result rows of each batch, until the listener removes it."""

    def __call__(self, frame: Any, batch: int) -> None:
        """Process one micro-batch; Spark calls this. Raises OttlaError."""
        try:
            self.rows[batch] = self._run(frame, batch)
        except OttlaError as error:
            self._fail(error)
        except Exception as error:  # Spark wraps the worker's exception
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
        run_whole(frame)  # the statement may use only a part of it
        return shape(frame, self.sql)

    def _fail(self, error: OttlaError, cause: Exception | None = None) -> None:
        self.results.discard()
        self.failure = error
        raise error from cause


def shape(frame: Any, sql: str) -> Any:
    """Apply the statement of `[result] sql` to the rows of a batch. Raises OperatorError."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    frame.createOrReplaceTempView(RESULT_VIEW)
    try:
        return frame.sparkSession.sql(sql)
    except (PySparkException, Py4JError) as error:
        raise OperatorError(f"[result] sql: Spark refused the statement: {refusal(error)}") from error
