"""Commands of `ottla pipeline`: errors as JSON for schedulers, and exit codes that separate retries from fixes.

An unreachable broker or store is a failure that a retry may fix (exit code 1) and not one of the operator (2), since
schedulers run these commands unattended.
"""

from __future__ import annotations

from typing import Any

import click

from ottla.cli.command import Command, print_json
from ottla.common.errors import OttlaError
from ottla.pipeline.model.retriable import as_retriable

_REPORTED = "ottla.pipeline.cli.pipeline_command.reported"


class PipelineCommand(Command):
    """A command that may print its error as JSON, on standard output in the place of a result."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except OttlaError as error:
            failure = as_retriable(error)
            _print_error(ctx, str(failure), failure.exit_code)
            if failure is error:
                raise
            raise failure from error
        except click.UsageError as error:
            _print_error(ctx, error.format_message(), error.exit_code)
            raise


def print_report(report: Any, indent: int | None = 2) -> None:
    """Print the result of a command that may fail all the same, such as checks of which some failed, as `print_json`.

    The result has the reasons then, and no error object follows it: standard output stays one document.
    """
    print_json(report, indent)
    click.get_current_context().meta[_REPORTED] = True


def _print_error(ctx: click.Context, message: str, exit_code: int) -> None:
    if ctx.params.get("as_json") and not ctx.meta.get(_REPORTED):
        indent = None if ctx.params.get("schedule") else 2
        print_json({"error": message, "exit_code": exit_code, "retriable": exit_code == 1}, indent=indent)
