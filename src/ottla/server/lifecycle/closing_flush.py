"""The final flush of all logs, before a stopping node writes its checkpoints."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from ottla.common.platform.clock import BlockingPool
from ottla.server.requests.outcome import await_callback
from ottla.storage.log.log import Log

CLOSING_FLUSHES = 64
"""Number of logs that a stop flushes concurrently."""


async def flush_all(logs: Iterable[Log], pool: BlockingPool) -> None:
    """Wait until no flush runs and all logs are durable; the log manager reports failed flushes.

    Some logs at once, since concurrent syncs share the journal's commits; not all, since each keeps files open.
    """
    changed = [log for log in logs if log.changed and not log.failed]
    for start in range(0, len(changed), CLOSING_FLUSHES):
        waiting = [_flush_for_close(log, pool) for log in changed[start : start + CLOSING_FLUSHES]]
        await asyncio.gather(*waiting, return_exceptions=True)


async def _flush_for_close(log: Log, pool: BlockingPool) -> None:
    await await_callback(lambda done: log.request_flush(pool, done))
    await await_callback(lambda done: log.request_closing_flush(pool, done))
