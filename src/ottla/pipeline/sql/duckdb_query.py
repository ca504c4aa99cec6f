"""Queries by DuckDB, inside this process and without Java: for small results, which it returns before Spark starts.

Tables and topics are Arrow datasets, so DuckDB pushes down columns and, for topics, offset ranges. DuckDB itself reads
no file and loads no extension: a statement sees only the named tables and topics. The SQL dialect is DuckDB's own.

**Invariant:** DuckDB is imported and called in one thread of its own, in which no signal raises anything: an interrupt
in the middle of its import, or of a call that returns into Python, would end the process by an abort or a traceback.

**Invariant:** no statement that writes is run, and resources are bounded: MEMORY_LIMIT of memory, SPILL_LIMIT in a
temporary directory, MAX_RESULT_BYTES of a result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, TypeVar

import pyarrow as pa

from ottla.client.wire.security import PLAINTEXT, ClientSecurity
from ottla.common.errors import OperatorError
from ottla.common.extras import require_packages
from ottla.pipeline.sinks.dataset import open_dataset
from ottla.pipeline.sinks.table import Table
from ottla.pipeline.spark.scratch import scratch_directory
from ottla.pipeline.sql.query import DEFAULT_VIEW, READS_ONLY, view_names
from ottla.pipeline.sql.topic_dataset import TopicDataset
from ottla.pipeline.sql.topic_views import DATABASE

MEMORY_LIMIT = "1GiB"
"""As much as Spark's driver gets."""
SPILL_LIMIT = "16GiB"
MAX_RESULT_BYTES = 1 << 30
"""As much as Spark's driver takes of a result (spark.driver.maxResultSize)."""
BATCH_ROWS = 100_000
_SETTINGS = {
    "allow_community_extensions": False,
    "allow_persistent_secrets": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "enable_external_access": False,
    "python_enable_replacements": False,  # variables of this program
}
INTERRUPT_AGAIN_S = 0.1
"""An interrupt before a statement starts has no effect, so the interrupt is repeated."""
_EXPLAIN = re.compile(r"EXPLAIN\s+(?:ANALYZE\b\s*)?(?:\([^()]*\)\s*)?", re.IGNORECASE)


def require_duckdb() -> None:
    """Raise OperatorError unless the extra `duckdb` can be imported."""
    require_packages("--engine duckdb needs", {"duckdb": "duckdb"}, "ottla[duckdb]")


@contextmanager
def open_query(memory_limit: str = MEMORY_LIMIT) -> Iterator[Query]:
    """A database in memory with nothing in it yet; gone at the end."""
    with scratch_directory("duckdb") as scratch:
        query = Query(memory_limit, str(scratch))
        try:
            query.open()
            yield query
        finally:
            query.close()


_T = TypeVar("_T")


class Query:
    """A connection and the tables and topics on it. KeyboardInterrupt ends a running statement, and waits for its
    end."""

    def __init__(self, memory_limit: str, scratch: str) -> None:
        """`scratch` is an empty directory for data beyond the memory limit."""
        self._memory_limit = memory_limit
        self._scratch = scratch
        self._thread = ThreadPoolExecutor(1)
        self._connection: Any = None
        self._topics: list[TopicDataset] = []

    def open(self) -> None:
        """Connect to a database in memory."""
        self._in_thread(self._open)

    def close(self) -> None:
        """Close the connection; no statement may be running."""
        if self._connection is not None:
            self._in_thread(self._connection.close)
        self._thread.shutdown()

    def _open(self) -> None:
        import duckdb

        bounds = {
            "memory_limit": self._memory_limit,
            "max_temp_directory_size": SPILL_LIMIT,
            "temp_directory": self._scratch,
        }
        self._connection = duckdb.connect(config={**_SETTINGS, **bounds})
        self._connection.execute("SET TimeZone = 'UTC'")
        self._connection.execute("SET lock_configuration = true")

    def _in_thread(self, call: Callable[[], _T]) -> _T:
        work = self._thread.submit(call)
        try:
            return work.result()
        except KeyboardInterrupt:
            while not work.done():
                if self._connection is not None:
                    self._connection.interrupt()
                wait([work], INTERRUPT_AGAIN_S)
            raise

    def register_tables(self, targets: Sequence[Table]) -> None:
        """Make the newest version of each table visible, a single one also as DEFAULT_VIEW. Raises OperatorError."""
        self._in_thread(lambda: self._register_tables(targets))

    def _register_tables(self, targets: Sequence[Table]) -> None:
        for name, target in zip(view_names(targets), targets, strict=True):
            try:
                dataset = open_dataset(target.layout(), target.schema(), target.files())
            except (OSError, pa.ArrowException) as error:
                raise OperatorError(f"the table {target.location} can't be read: {_first_line(error)}") from error
            self._connection.register(name, dataset)
            if len(targets) == 1:
                self._connection.register(DEFAULT_VIEW, dataset)

    def register_topics(
        self, topics: Sequence[str], bootstrap_servers: str, security: ClientSecurity = PLAINTEXT
    ) -> None:
        """Make topics visible in the schema DATABASE. Raises OperatorError, KafkaError."""
        self._in_thread(lambda: self._register_topics(topics, bootstrap_servers, security))

    def _register_topics(self, topics: Sequence[str], bootstrap_servers: str, security: ClientSecurity) -> None:
        self._connection.execute(f"CREATE SCHEMA {DATABASE}")
        for topic in topics:
            dataset = TopicDataset(topic, bootstrap_servers, security)
            self._topics.append(dataset)
            self._connection.register(f"{DATABASE}.{topic}", dataset)
            self._connection.execute(f'CREATE VIEW {DATABASE}."{topic}" AS FROM "{DATABASE}.{topic}"')

    def run(self, statement: str) -> pa.Table:
        """The result of a statement. Raises OperatorError with DuckDB's words when it is wrong, not a query (it is not
        run then) or its result is too large; raises the error that ended the read of a topic."""
        return self._in_thread(lambda: self._run(statement))

    def _run(self, statement: str) -> pa.Table:
        import duckdb

        try:
            self._require_reading(statement)
            return self._answer(statement)
        except (duckdb.Error, OSError, pa.ArrowException) as error:
            for dataset in self._topics:
                if dataset.failure is not None:
                    raise dataset.failure from error
            if isinstance(error, duckdb.OutOfMemoryException):
                raise OperatorError(
                    f"the query needs more than {self._memory_limit} of memory: read less, or take --engine spark"
                ) from error
            raise OperatorError(f"DuckDB refused the statement: {_first_line(error)}") from error

    def _answer(self, statement: str) -> pa.Table:
        relation = self._connection.sql(statement)
        return _narrowed(_collected(relation.to_arrow_reader(BATCH_ROWS)), [str(kind) for kind in relation.types])

    def _require_reading(self, statement: str) -> None:
        parsed = self._connection.extract_statements(statement)
        if len(parsed) == 1 and parsed[0].type.name == "EXPLAIN":
            parsed = self._connection.extract_statements(_EXPLAIN.sub("", statement.lstrip(), count=1))
        if [one.type.name for one in parsed] != ["SELECT"]:  # SHOW and DESCRIBE are such
            raise OperatorError(f"the statement is not a query; {READS_ONLY}")


def _collected(reader: pa.RecordBatchReader) -> pa.Table:
    batches, size_bytes = [], 0
    with reader:
        for batch in reader:
            size_bytes += batch.nbytes
            if size_bytes > MAX_RESULT_BYTES:
                raise OperatorError(
                    f"the result is larger than {MAX_RESULT_BYTES >> 20} MiB: aggregate it or LIMIT its rows, or take "
                    "--engine spark with --conf spark.driver.maxResultSize"
                )
            batches.append(batch)
    return pa.Table.from_batches(batches, reader.schema)


def _narrowed(result: pa.Table, types: Sequence[str]) -> pa.Table:
    """Narrow sums of integers, which are 128 bits wide in DuckDB, to Spark's type where they fit."""
    for index, kind in enumerate(types):
        if kind == "HUGEINT":
            try:
                numbers = result.column(index).cast(pa.int64())
            except pa.ArrowInvalid:
                continue
            result = result.set_column(index, pa.field(result.schema.names[index], pa.int64()), numbers)
    return result


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__).rstrip(".")
