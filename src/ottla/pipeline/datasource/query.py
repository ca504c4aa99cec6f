"""Which query and which epoch a task works for: Spark tells its readers and writers nothing of it, but its tasks' local
properties do."""

from __future__ import annotations

from typing import Any, NamedTuple

from pyspark import TaskContext

QUERY_PROPERTY = "sql.streaming.queryId"
EPOCH_PROPERTY = "streaming.sql.batchId"


class QueryTask(NamedTuple):
    """A task of a streaming query."""

    query_id: str
    epoch: int
    task: int


def current_query() -> QueryTask | None:
    """Of the task that this worker has; None where it is no stream's, and outside of tasks."""
    context: Any = TaskContext.get()
    if context is None:
        return None
    query, epoch = (context.getLocalProperty(name) for name in (QUERY_PROPERTY, EPOCH_PROPERTY))
    if query is None or epoch is None:
        return None
    return QueryTask(query, int(epoch), context.partitionId())
