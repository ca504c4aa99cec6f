"""Commands of `ottla pipeline`: errors as JSON for schedulers, and exit codes that separate retries from fixes.

An unreachable broker or store is a failure that a retry may fix (exit code 1) and not one of the operator (2), since
schedulers run these commands unattended.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Any

import click

from ottla.cli.command import Command, print_json
from ottla.common.errors import OperatorError, OttlaError
from ottla.pipeline.model.failure import JAVA_DIED

_REPORTED = "ottla.pipeline.cli.pipeline_command.reported"
_UNREACHABLE = frozenset(
    {errno.ECONNREFUSED, errno.ECONNRESET, errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN}
)
_UNREACHABLE_TEXTS = ("curlCode", "error sending request", "Max retries exceeded", "NETWORK_CONNECTION")
"""Of Arrow's and delta-rs' stores and of catalogs, whose exceptions have no error number."""


class PipelineCommand(Command):
    """A command that may print its error as JSON, on standard output in the place of a result."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except OttlaError as error:
            failure = retriable(error)
            _print_error(ctx, str(failure), failure.exit_code)
            if failure is error:
                raise
            raise failure from error
        except click.UsageError as error:
            _print_error(ctx, error.format_message(), error.exit_code)
            raise


def print_report(report: Any) -> None:
    """Print the result of a command that may fail all the same, such as checks of which some failed.

    The result has the reasons then, and no error object follows it: standard output stays one document.
    """
    print_json(report)
    click.get_current_context().meta[_REPORTED] = True


def retriable(error: OttlaError) -> OttlaError:
    """The error, as one that a retry may fix if a broker or a store could not be reached, or Java died."""
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


def _print_error(ctx: click.Context, message: str, exit_code: int) -> None:
    if ctx.params.get("as_json") and not ctx.meta.get(_REPORTED):
        indent = None if ctx.params.get("schedule") else 2
        print_json({"error": message, "exit_code": exit_code, "retriable": exit_code == 1}, indent=indent)
