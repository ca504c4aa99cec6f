"""Query and epoch of a task: Spark does not pass them to its readers and writers, so they are taken from the task's
local properties."""

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
    """The query task of this worker; None for a batch query, and outside of tasks."""
    context: Any = TaskContext.get()
    if context is None:
        return None
    query, epoch = (context.getLocalProperty(name) for name in (QUERY_PROPERTY, EPOCH_PROPERTY))
    if query is None or epoch is None:
        return None
    return QueryTask(query, int(epoch), context.partitionId())
