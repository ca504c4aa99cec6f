"""Work in the workers of an engine: one task for each task number, and one manifest row back from each.

The engine is a Spark session or a `LocalSession`. Payload never enters the JVM: a worker gets the number of its task,
and returns a dataclass of texts and integers.
Permanent errors are returned as rows and raised on the driver in their own words; all others are raised in the worker,
so that the engine's retries apply. An unreachable cluster is of the latter: each attempt waits for it, and when the
engine gives up a task no other is started, which would only wait as well.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from ottla.client.wire.connection import BrokerUnreachable, ConnectionLost
from ottla.client.wire.failure import TopicNotFound, TopicReplaced
from ottla.common.errors import RETRIABLE_ERRORS, ErrorCode, KafkaError, OperatorError, OttlaError
from ottla.pipeline.local.pool import LocalSession, TaskFailedError
from ottla.pipeline.model.arrays import numbers, texts
from ottla.pipeline.model.decode import DecodeError
from ottla.pipeline.model.failure import NO_ROOM, spark_reason
from ottla.pipeline.model.plan import DataLossError
from ottla.pipeline.model.rollback import LoadRefusedError
from ottla.pipeline.sources.source import RecordsDeletedError


@dataclass(frozen=True, slots=True)
class ManifestRow:
    """Result of one task, in fields `str` and `int` only; `error` is empty unless it failed."""

    task: int
    files: str = ""
    """The written files, in the format of `sinks.table.files_to_json`."""
    rows: int = 0
    """Number of rows in these files."""
    size_bytes: int = 0
    error_kind: str = ""
    error: str = ""


Row = TypeVar("Row", bound=ManifestRow)

LASTING = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.ENAMETOOLONG}
)
"""Permanent errors of the operating system: an immediate retry can't succeed."""

_OPERATORS = frozenset(kind.__name__ for kind in (OperatorError, LoadRefusedError))
_OTHERS = frozenset(
    kind.__name__
    for kind in (
        OttlaError,
        KafkaError,
        ConnectionLost,
        DataLossError,
        RecordsDeletedError,
        DecodeError,
        TopicNotFound,
        TopicReplaced,
    )
)
"""Names of Ottla's errors, as in the last line of a traceback."""
_REFUSED = re.compile(r"\w+: \[Errno (?P<number>\d{1,4})\] .*")
"""An OSError as the last line of a traceback."""

_ERROR_KINDS: dict[str, Callable[[str], OttlaError]] = {
    "corrupt": lambda message: DecodeError(ErrorCode.CORRUPT_MESSAGE, message),
    "data loss": DataLossError,
    "operator": OperatorError,
    "failed": OttlaError,
}


def map_rows(frame: Any, run: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], ddl: str) -> Any:
    """Apply `run` to the rows of a DataFrame: `mapInArrow` would take a dot in a column's name for a path."""
    names = list(frame.columns)

    def named(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return run(batch.rename_columns(names) for batch in batches)

    return frame.toDF(*(f"column{number}" for number in range(len(names)))).mapInArrow(named, ddl)


def attempt(number: int, work: Callable[[], Row], failed: Callable[..., Row], directory: str) -> Row:
    """The row of one task that writes below `directory`; runs in a worker.

    `failed` creates one from the task's number, `error_kind` and `error`.
    """
    try:
        return work()
    except DecodeError as error:
        return failed(number, error_kind="corrupt", error=str(error))
    except RecordsDeletedError as error:
        way_on = "load the remaining records with --on-data-loss skip"
        return failed(number, error_kind="data loss", error=f"{error}; {way_on}")
    except DataLossError as error:
        return failed(number, error_kind="data loss", error=str(error))
    except BrokerUnreachable:
        raise
    except OperatorError as error:
        return failed(number, error_kind="operator", error=str(error))
    except (TopicNotFound, TopicReplaced) as error:
        return failed(number, error_kind="failed", error=str(error))
    except OttlaError as error:
        if isinstance(error, KafkaError) and error.code in RETRIABLE_ERRORS:
            raise
        return failed(number, error_kind="failed", error=str(error))
    except OSError as error:
        if error.errno not in LASTING:
            raise
        return failed(number, error_kind="operator", error=_not_written(table_directory(directory), error.errno))


def task_failure(what: str, error: BaseException, where: str) -> OttlaError:
    """The error that a task raised until Spark gave it up, or that the driver raised, as an OttlaError.

    `what` names the failed work and `where` its target in the message.
    """
    reason = f"OSError: {error}" if isinstance(error, OSError) else spark_reason(error)
    return _failure(what, reason, where, spark_reason(error))


def _failure(what: str, reason: str, where: str, other: str) -> OttlaError:
    """The error for a reason in the form of a traceback's last line; `other` describes errors that are not Ottla's."""
    kind, _, message = reason.partition(": ")
    refused = _REFUSED.fullmatch(reason)
    if message and kind == BrokerUnreachable.__name__:
        return BrokerUnreachable(message)
    if message and kind in _OPERATORS:
        return OperatorError(message)
    if refused is not None and int(refused["number"]) in LASTING:
        return OperatorError(_not_written(where, int(refused["number"])))
    if reason.startswith(NO_ROOM):
        return OperatorError(f"{what}: {reason}")
    return OttlaError(f"{what}: {message if message and kind in _OTHERS else other}")


def table_directory(directory: str) -> str:
    """The table's directory as messages name it."""
    return f"the table's directory {directory}"


def _not_written(where: str, number: int) -> str:
    return f"{where} can't be written: {os.strerror(number).lower()}; fix the cause and run it again"


def as_arrow(row: ManifestRow) -> pa.RecordBatch:
    """The row in the form that a task returns to Spark."""
    values = asdict(row).values()
    columns = [texts([one]) if isinstance(one, str) else numbers(np.array([one], np.int64)) for one in values]
    return pa.RecordBatch.from_arrays(columns, [one.name for one in fields(row)])


def run_tasks(
    session: Any,
    count: int,
    work: Callable[[int], Row],
    kind: type[Row],
    what: str,
    directory: str,
    observe: Callable[[int, Row], object] | None = None,
) -> list[Row]:
    """Run the tasks 0 to `count` - 1 on a Spark session or a `LocalSession`; returns their rows in that order.

    `work` is pickled; `observe` is called with the number and the row of each finished task, in Spark's workers or on
    the local driver. `what` names the work in errors ("load"); the tasks write below `directory`. Raises the first
    error of a task.
    """
    if isinstance(session, LocalSession):
        try:
            rows = session.run(count, work, observe)
        except TaskFailedError as error:
            reason, where = str(error), table_directory(directory)
            raise _failure(f"the {what} failed in a task", reason, where, reason) from error
    else:
        rows = _run_on_spark(session, count, work, kind, what, directory, observe)
    failed = next((row for row in rows if row.error_kind), None)
    if failed is not None:
        raise _ERROR_KINDS[failed.error_kind](failed.error)
    if [row.task for row in rows] != list(range(count)):
        raise OttlaError(
            "the engine returned results of other tasks than it was given; nothing was committed, run it again"
        )
    return rows


def _run_on_spark(
    spark: Any,
    count: int,
    work: Callable[[int], Row],
    kind: type[Row],
    what: str,
    directory: str,
    observe: Callable[[int, Row], object] | None,
) -> list[Row]:
    ddl = ", ".join(f"{one.name} {'string' if one.type == 'str' else 'bigint'}" for one in fields(kind))

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                row = work(number)
                if observe is not None:
                    observe(number, row)
                yield as_arrow(row)

    try:
        found = spark.range(0, count, 1, count).mapInArrow(run, ddl).collect() if count else []
    except Exception as error:  # Spark wraps the worker's exception
        raise task_failure(f"the {what} failed in a Spark task", error, table_directory(directory)) from error
    return sorted((kind(**row.asDict()) for row in found), key=lambda row: row.task)
