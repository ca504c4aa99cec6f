"""Failures that a retry may fix: a broker or a store that can't be reached, or a Java process that died."""

from __future__ import annotations

import errno
from collections.abc import Iterator

from ottla.common.errors import OperatorError, OttlaError
from ottla.pipeline.model.failure import JAVA_DIED

_UNREACHABLE = frozenset(
    {errno.ECONNREFUSED, errno.ECONNRESET, errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN}
)
_UNREACHABLE_TEXTS = ("curlCode", "error sending request", "Max retries exceeded", "NETWORK_CONNECTION")
"""Of Arrow's and delta-rs' stores and of catalogs, whose exceptions have no error number."""


def as_retriable(error: OttlaError) -> OttlaError:
    """The error as an OttlaError (exit code 1) if a retry may fix it, else the error itself."""
    if isinstance(error, OperatorError) and (_is_unreachable(error) or JAVA_DIED in str(error)):
        return OttlaError(str(error))
    return error


def _is_unreachable(error: OperatorError) -> bool:
    from ottla.client.wire.connection import BrokerUnreachable

    if isinstance(error, BrokerUnreachable):
        return True
    return any(
        isinstance(cause, ConnectionError | TimeoutError)
        or (isinstance(cause, OSError) and cause.errno in _UNREACHABLE)
        or any(text in str(cause) for text in _UNREACHABLE_TEXTS)
        for cause in _causes(error)
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause = error.__cause__
    while cause is not None:
        yield cause
        cause = cause.__cause__
