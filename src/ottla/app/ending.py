"""How every command ends: what it raises becomes one sentence on standard error and an exit code, never a traceback.

The sentence is a line of JSON where the log of the command is that.

Exit codes: 0 done (also when the reader of a pipe went away: it had enough), 1 it failed, 2 the usage or the
environment is wrong (an unknown option, a broker that can't be reached, a full disk), 130 interrupted, 143 terminated.
Errors that nobody raised on purpose are defects and do show their traceback.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import sys
from collections.abc import Iterator

import click

from ottla.app.logging import logs_json
from ottla.app.streams import STANDARD_OUTPUT, forget
from ottla.common.errors import OperatorError, OttlaError

EXIT_FAILURE = 1
EXIT_OPERATOR_ERROR = 2
SIGNAL_EXIT_BASE = 128
"""Exit codes of shells for a process that a signal ended: this and the number of the signal."""


def stopping_signals() -> list[signal.Signals]:
    """What asks a node to stop: also that its terminal is gone, unless whoever started it has it go on (nohup)."""
    hangup = [] if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else [signal.SIGHUP]
    return [signal.SIGTERM, signal.SIGINT, *hangup]


@contextlib.contextmanager
def ending() -> Iterator[None]:
    """Turn what the block raises into a sentence and click's Exit."""
    try:
        yield
        sys.stdout.flush()
    except KeyboardInterrupt as error:
        number = error.args[0] if error.args else signal.SIGINT
        raise click.exceptions.Exit(SIGNAL_EXIT_BASE + number) from None
    except OttlaError as error:
        _end(str(error), EXIT_OPERATOR_ERROR if isinstance(error, OperatorError) else EXIT_FAILURE)
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
        if logs_json():
            logging.getLogger("ottla").error("%s", sentence)
        else:
            click.echo(f"ottla: {sentence}", err=True)
    except OSError:
        forget(sys.stderr)
    raise click.exceptions.Exit(exit_code) from None


def _reader_left() -> bool:
    """Whether nobody reads a standard stream any more; otherwise a pipe that broke led elsewhere, to a peer perhaps."""
    streams = select.poll()
    for descriptor in (1, 2):
        streams.register(descriptor, 0)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in streams.poll(0))


def _os_error_text(error: OSError) -> str:
    """The words of the operating system, and what they are about."""
    if error.filename is None:
        if isinstance(error, FileNotFoundError) and not _has_working_directory():
            return "the directory that this command runs in was removed: change into one that is there"
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
    """Arguments and the environment come with bytes that are no UTF-8 as surrogates, which nothing can encode.

    In a locale that knows ASCII alone so do those of every other text.
    """
    if not isinstance(error, UnicodeEncodeError) or not any("\udc80" <= char <= "\udcff" for char in error.object):
        return f"a text is not valid: {error}"
    data = error.object.encode("utf-8", "surrogateescape")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"an argument is not valid UTF-8: {data!r}"
    return f"an argument is more than ASCII, and this locale knows no more: {text!r}; set LC_ALL to one of UTF-8"
