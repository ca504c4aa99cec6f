"""Awaits an operation that reports its result by a callback."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

Done = Callable[[BaseException | None], None]


def resolving(future: asyncio.Future[None]) -> Done:
    """A callback that completes `future`."""

    def done(error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    return done


async def await_callback(begin: Callable[[Done], object]) -> None:
    """Start an operation with `begin`, and wait until it calls its callback; raises the error."""
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    begin(resolving(ended))
    await ended
