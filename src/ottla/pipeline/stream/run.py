"""Execution of a stream: from its definition to a running query of Spark.

All checks that need no Spark run before it starts. The main thread waits for an event and checks periodically that
Spark is alive, so that a signal is never delivered inside a call to the JVM.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import cloudpickle
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQueryListener

from ottla.cli.command import uninterrupted
from ottla.client.admin.cluster import Cluster
from ottla.client.wire.security import PLAINTEXT, ClientSecurity
from ottla.common.errors import OperatorError, OttlaError
from ottla.pipeline.datasource.provider import OttlaDataSource
from ottla.pipeline.load.tasks import task_failure
from ottla.pipeline.model.failure import NOT_CONNECTED, refusal, spark_reason
from ottla.pipeline.model.plan import SKIP_DATA_LOSS
from ottla.pipeline.sinks.open_table import open_table
from ottla.pipeline.sinks.table import Table
from ottla.pipeline.sinks.topic import TopicTarget
from ottla.pipeline.sql.topic_views import security_options
from ottla.pipeline.stream.batches import BatchRunner, shape
from ottla.pipeline.stream.definition import QueryDefinition, StreamDefinition
from ottla.pipeline.stream.letters import DeadLetters
from ottla.pipeline.stream.progress import Observe, StreamSummary, batch_progress
from ottla.pipeline.stream.results import Results
from ottla.pipeline.stream.state import DEFAULT_DIRECTORY, StreamState, held_state
from ottla.pipeline.stream.table_results import TableResults
from ottla.pipeline.stream.topic_results import TopicResults
from ottla.pipeline.stream.views import open_formats, register_views, require_same_fields, require_topics, settle
from ottla.pipeline.transform.value_format import ValueFormat

logger = logging.getLogger(__name__)

ALIVE_S = 1.0
"""Seconds between checks that Spark is alive."""
STARTS = 4
"""Maximum starts of a query whose source process started too late: each start creates that Python process, for which
Spark waits ten seconds (not configurable), and a busy machine takes longer for the imports."""
SESSION_SETTINGS = {"spark.sql.streaming.stopTimeout": "20s"}
"""Bounds the wait for a stream that is stopped in the middle of a batch."""

OpenSession = Callable[[], AbstractContextManager[Any]]
OpenTable = Callable[[], Table]


@dataclass(frozen=True, slots=True)
class StreamJob:
    """A stream, its cluster and its state directory."""

    definition: StreamDefinition
    bootstrap_servers: str
    checkpoint: Path
    once: bool = False
    """Stop when all records available at the start are read."""
    open_table: OpenTable | None = None
    """Opens the table of the results, in place of the definition's."""
    security: ClientSecurity = PLAINTEXT


def default_checkpoint(definition: StreamDefinition) -> Path:
    """Directory next to a local table, else in the working directory."""
    result = definition.result
    is_here = result.table and result.catalog is None and "://" not in result.table
    beside = Path(result.table).parent if is_here else Path()
    return beside / DEFAULT_DIRECTORY / definition.name


def run_stream(job: StreamJob, open_session: OpenSession, observe: Observe | None = None) -> StreamSummary:
    """Run until the stream is stopped; with `once` it also ends on its own. Raises OttlaError, KeyboardInterrupt."""
    definition = job.definition
    formats = open_formats(definition)
    with held_state(job.checkpoint, definition) as state:
        table = _table(job)
        results = _results(job, table, state)
        letters = DeadLetters(state, _letter_table(table, state), definition.name)
        progress = state.progress()
        results.require_fit(progress.planned, progress.ended)
        client_id = f"ottla-stream-{definition.name}"
        with Cluster(job.bootstrap_servers, client_id=client_id, security=job.security) as cluster:
            cluster_id = cluster.describe().cluster_id or ""
            state.require_cluster(definition, cluster_id)
            require_topics(definition, cluster)
            if progress.planned < 0:
                state.settle(definition, settle(definition, formats, cluster), cluster_id)
            else:
                require_same_fields(definition, formats, state.fields)
        letters.clear()
        runner = BatchRunner(results, letters, definition.result.sql)
        with open_session() as spark:
            return _run_query(job, spark, state, formats, runner, observe)


def _run_query(
    job: StreamJob,
    spark: Any,
    state: StreamState,
    formats: Mapping[str, ValueFormat],
    runner: BatchRunner,
    observe: Observe | None,
) -> StreamSummary:
    definition = job.definition
    spark.dataSource.register(OttlaDataSource)
    options = {"kafka.bootstrap.servers": job.bootstrap_servers, **security_options(job.security)}
    views = register_views(spark, definition, formats, state.fields, state.letters, options)
    frame = _query(spark, definition.query, views)
    empty = spark.createDataFrame([], frame.schema)
    runner.results.open(shape(empty, runner.sql) if runner.sql else empty)
    summary = StreamSummary(definition.name, runner.results.location, dead_letter_table=runner.letters.location)
    listener = _Listener(runner, summary, observe)
    writer = frame.writeStream.outputMode(definition.query.output).foreachBatch(runner)
    writer = writer.option("checkpointLocation", str(state.checkpoint)).queryName(definition.name)
    trigger = {"availableNow": True} if job.once else {"processingTime": definition.trigger}
    started = time.monotonic()
    with _listening(spark, listener):
        for _ in range(STARTS):
            listener.ended.clear()
            try:
                query = writer.trigger(**trigger).start()
            except (PySparkException, Py4JError) as error:
                raise OperatorError(f"Spark refused the query: {refusal(error)}") from error
            try:
                _wait(spark, query, listener)
            finally:
                with uninterrupted():
                    _stop(query)
            failure = query.exception()
            if failure is None or NOT_CONNECTED not in str(failure):
                break
            logger.info("the source's Python process was late; the query is started again")
    summary.seconds = time.monotonic() - started
    if runner.failure is not None:
        raise runner.failure
    if listener.failure is not None:
        raise listener.failure
    if failure is not None:
        raise _stream_error(failure, state)
    return summary


def _table(job: StreamJob) -> Table | None:
    """The result table, None for a topic. An existing table keeps its partition columns, regardless of the
    definition."""
    result = job.definition.result
    if job.open_table is not None:
        return job.open_table()
    if not result.table:
        return None
    table = open_table(result.table, format=result.format, catalog_url=result.catalog)
    if not result.partition_by or table.exists():
        return table
    return open_table(result.table, format=result.format, partition_by=result.partition_by, catalog_url=result.catalog)


def _letter_table(table: Table | None, state: StreamState) -> Table:
    return open_table(state.path / "dead-letters") if table is None else table.dead_letters()


def _results(job: StreamJob, table: Table | None, state: StreamState) -> Results:
    definition = job.definition
    if table is not None:
        return TableResults(table, definition.name, definition.query.output, definition.result.keys, state)
    client_id = f"ottla-stream-{definition.name}"
    target = TopicTarget(job.bootstrap_servers, definition.result.topic, client_id=client_id, security=job.security)
    return TopicResults(target, definition.name, definition.result.key, state)


def _query(spark: Any, query: QueryDefinition, views: Mapping[str, Any]) -> Any:
    """The DataFrame of the query, which streams. Raises OperatorError."""
    try:
        frame = _call(spark, query, views) if query.file is not None else spark.sql(query.sql)
        streams = isinstance(frame, DataFrame) and frame.isStreaming
    except (PySparkException, Py4JError) as error:
        raise OperatorError(f"[query]: Spark refused it: {refusal(error)}") from error
    if not streams:
        raise OperatorError("[query] is not a streaming query: read one of the views of [sources] in it")
    return frame


def _call(spark: Any, query: QueryDefinition, views: Mapping[str, Any]) -> Any:
    """Call a function of a Python file; the file's functions are sent to the workers by value."""
    where = f"[query] python: {query.file}:{query.function}"
    spec = importlib.util.spec_from_file_location(f"ottla_stream_{Path(str(query.file)).stem}", str(query.file))
    if spec is None or spec.loader is None or not Path(str(query.file)).is_file():
        raise OperatorError(f"{where}: the file does not exist")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where pickle looks for it
    cloudpickle.register_pickle_by_value(module)
    try:
        spec.loader.exec_module(module)
        function = getattr(module, query.function, None)
        if not callable(function):
            raise OperatorError(f"{where}: the file does not define this function")
        return function(spark, dict(views))
    except (OttlaError, PySparkException, Py4JError):
        raise
    except Exception as error:  # of any class: it is the operator's code
        raise OperatorError(f"{where} failed: {type(error).__name__}: {error}") from error


class _Listener(StreamingQueryListener):  # type: ignore[misc]
    """Receives Spark's events of the query, in a thread of py4j."""

    def __init__(self, runner: BatchRunner, summary: StreamSummary, observe: Observe | None) -> None:
        self._runner = runner
        self._summary = summary
        self._observe = observe
        self._run_id: Any = None
        self._letters = 0
        self.ended = threading.Event()
        self.failure: OSError | None = None
        """Error while printing a batch, such as a closed pipe; ends the stream."""

    def onQueryStarted(self, event: Any) -> None:
        if event.name == self._summary.name:
            self._run_id = event.runId

    def onQueryProgress(self, event: Any) -> None:
        reported = event.progress
        if reported.runId != self._run_id or reported.batchId not in self._runner.rows:
            return  # another query, or a trigger without a batch
        letters, self._letters = self._runner.letters.rows - self._letters, self._runner.letters.rows
        progress = batch_progress(reported, self._runner.rows.pop(reported.batchId), letters)
        self._summary.add(progress)
        if self._observe is None or self.failure is not None:
            return
        try:
            self._observe(progress)
        except OSError as error:
            self.failure = error
            self.ended.set()

    def onQueryIdle(self, event: Any) -> None:
        """Nothing to report without new records."""

    def onQueryTerminated(self, event: Any) -> None:
        if event.runId == self._run_id:
            self.ended.set()


@contextmanager
def _listening(spark: Any, listener: _Listener) -> Iterator[None]:
    callbacks = logging.getLogger("py4j.clientserver")  # logs exceptions of a batch with a traceback
    level = callbacks.level
    callbacks.setLevel(logging.CRITICAL)
    spark.streams.addListener(listener)
    try:
        yield
    finally:
        callbacks.setLevel(level)
        with uninterrupted(), _unless_gone():
            spark.streams.removeListener(listener)


def _wait(spark: Any, query: Any, listener: _Listener) -> None:
    """Wait until the query ends. Raises OttlaError when Spark has ended."""
    while not listener.ended.wait(ALIVE_S):
        with uninterrupted():
            try:
                query.isActive  # noqa: B018  # asks the JVM
            except Exception as error:  # of py4j
                raise OttlaError(f"Spark ended unexpectedly: {spark_reason(error)}") from error


def _stop(query: Any) -> None:
    with _unless_gone():
        query.stop()


@contextmanager
def _unless_gone() -> Iterator[None]:
    """Ignore errors of calls to a JVM that may have ended; the cause is reported elsewhere."""
    try:
        yield
    except Exception as error:  # of py4j, and of a query that took too long to stop
        logger.debug("Spark does not answer: %s", error)


def _stream_error(failure: StreamingQueryException, state: StreamState) -> OttlaError:
    """Convert a failure of the query, with the key names of a definition."""
    error = task_failure("the stream failed", failure, f"the stream's directory {state.path}")
    return type(error)(str(error).replace(SKIP_DATA_LOSS, 'set on_data_loss to "skip"'))
