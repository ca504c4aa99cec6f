"""End of every command: exceptions become one message on standard error and an exit code, without a traceback.

The message is a line of JSON if the command logs JSON.

Exit codes: 0 success (also when the reader of a pipe has closed it, and when SIGTERM ends a command without an end of
its own), 1 failure, 2 wrong usage or environment (an unknown option, an unreachable broker, a full disk), 130
interrupted, 143 terminated. An error class may have another one.
Unexpected exceptions are defects and do print a traceback.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from collections.abc import Iterator

import click

from ottla.app.streams import STANDARD_OUTPUT, forget
from ottla.common.errors import OttlaError
from ottla.common.runbooks import with_runbook
from ottla.common.suggestion import did_you_mean

EXIT_FAILURE = 1
EXIT_OPERATOR_ERROR = 2
SIGNAL_EXIT_BASE = 128
"""Shells' exit code of a process that was ended by a signal: this plus the signal number."""


def stopping_signals() -> list[signal.Signals]:
    """Signals that stop a node; SIGHUP only if it is not ignored (nohup)."""
    hangup = [] if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else [signal.SIGHUP]
    return [signal.SIGTERM, signal.SIGINT, *hangup]


@contextlib.contextmanager
def ending() -> Iterator[None]:
    """Convert exceptions of the block into a message and click's Exit."""
    try:
        yield
        sys.stdout.flush()
    except KeyboardInterrupt as error:
        number = error.args[0] if error.args else signal.SIGINT
        raise click.exceptions.Exit(SIGNAL_EXIT_BASE + number) from None
    except click.NoSuchOption as error:
        hint = did_you_mean(error.option_name, error.possibilities or ())
        raise click.UsageError(f"No such option {error.option_name!r}{hint or '.'}", error.ctx) from None
    except OttlaError as error:
        message = with_runbook(str(error), error.runbook)
        _end(message, error.exit_code)
    except OSError as error:
        if isinstance(error, BrokenPipeError) and (error.filename == STANDARD_OUTPUT or _reader_left()):
            forget(sys.stdout)
            raise click.exceptions.Exit(0) from None
        _end(_os_error_text(error), EXIT_OPERATOR_ERROR)
    except UnicodeError as error:
        _end(_unicode_error_text(error), EXIT_OPERATOR_ERROR)
    except Exception as error:
        library = sys.modules.get("confluent_kafka")
        if library is None or not isinstance(error, library.KafkaException):
            raise
        _end(error.args[0].str(), EXIT_FAILURE)


def _end(sentence: str, exit_code: int) -> None:
    try:
        sys.stdout.flush()
    except OSError:
        forget(sys.stdout)
    try:
        if not _logged_as_json(sentence):
            click.echo(f"ottla: {sentence}", err=True)
    except OSError:
        forget(sys.stderr)
    raise click.exceptions.Exit(exit_code) from None


def _logged_as_json(sentence: str) -> bool:
    """Log an error if this process logs JSON. Commands that log nothing have not imported `logging`."""
    if "logging" not in sys.modules:
        return False
    import logging

    from ottla.app.logging import logs_json

    is_json = logs_json()
    if is_json:
        logging.getLogger("ottla").error("%s", sentence)
    return is_json


def _reader_left() -> bool:
    """True if the reader of a standard stream is gone; otherwise the broken pipe was another one, such as a socket."""
    streams = select.poll()
    for descriptor in (1, 2):
        streams.register(descriptor, 0)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in streams.poll(0))


def _os_error_text(error: OSError) -> str:
    """The message of the operating system, with its subject."""
    if error.filename is None:
        if isinstance(error, FileNotFoundError) and not _has_working_directory():
            return "the current directory was removed: change to an existing one"
        return f"the operating system refused: {_words(error)}"
    if error.filename == STANDARD_OUTPUT:
        return f"cannot write to {STANDARD_OUTPUT}: {_words(error)}"
    return f"cannot use {error.filename}: {_words(error)}"


def _has_working_directory() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True


def _words(error: OSError) -> str:
    return (error.strerror or str(error) or type(error).__name__).lower()


def _unicode_error_text(error: UnicodeError) -> str:
    """The message for an argument or environment variable that is not valid UTF-8, in which Python has put surrogates.

    In an ASCII locale this applies to all non-ASCII text.
    """
    if not isinstance(error, UnicodeEncodeError) or not any("\udc80" <= char <= "\udcff" for char in error.object):
        return f"invalid text: {error}"
    data = error.object.encode("utf-8", "surrogateescape")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"an argument is not valid UTF-8: {data!r}"
    return f"an argument is not ASCII, but the locale is: {text!r}; set LC_ALL to a UTF-8 locale"
