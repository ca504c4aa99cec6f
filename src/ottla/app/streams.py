"""The three standard streams, made safe before a command runs.

Afterwards descriptors 0 to 2 are open, so that no file or socket is taken for one of them; any text can be written,
what the encoding lacks as an escape, and bytes of an argument that are no UTF-8 as those bytes; and text for a terminal
does not steer it. What means to (rich) writes to
`sys.__stdout__` or `sys.__stderr__`; bytes go through `sys.stdout.buffer` as they are.
"""

from __future__ import annotations

import codecs
import io
import os
import sys
from typing import Any, TextIO

from ottla.common.control_chars import escape_control_chars

STANDARD_OUTPUT = "standard output"
ESCAPES = "ottla.escapes"
SURROGATE_OF_BYTE_0 = 0xDC00
"""Bytes from 0x80 on that are no UTF-8 come behind it (PEP 383)."""


class SafeTerminal(io.TextIOWrapper):
    """A terminal that gets control characters only as escapes."""

    def write(self, text: str) -> int:
        """Write `text`; see `escape_control_chars`."""
        return super().write(escape_control_chars(text))


class RawOutput(io.FileIO):
    """Descriptor 1, whose failures name it: a full disk there is no fault of a file that is read meanwhile."""

    def write(self, data: Any) -> int | None:  # type: ignore[override]  # typeshed leaves the None out
        """Write what the system takes of `data`. Raises OSError with `filename` STANDARD_OUTPUT."""
        try:
            return super().write(data)
        except OSError as error:
            error.filename = STANDARD_OUTPUT
            raise


def prepare_streams() -> None:
    """Do what the module says. Only the process entry calls this."""
    codecs.register_error(ESCAPES, escaped)
    for descriptor in (0, 1, 2):
        _reopen_if_closed(descriptor)
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)))
    sys.stdout = _safe(io.BufferedWriter(RawOutput(1, "w", closefd=False)), sys.stdout)
    sys.stderr = _safe(io.BufferedWriter(io.FileIO(2, "w", closefd=False)), sys.stderr, line_buffering=True)


def _reopen_if_closed(descriptor: int) -> None:
    """What is said there is lost; but who prints a result learns that nobody gets it."""
    try:
        os.fstat(descriptor)
    except OSError:
        lowest = os.open(os.devnull, os.O_WRONLY if descriptor == 2 else os.O_RDONLY)
        os.set_inheritable(lowest, True)


def _safe(buffer: io.BufferedWriter, stream: TextIO | None, line_buffering: bool = False) -> TextIO:
    """A text stream on `buffer` in the encoding of `stream`, which is None where Python found the descriptor closed."""
    encoding = stream.encoding if stream is not None else "utf-8"
    if not buffer.isatty():
        return io.TextIOWrapper(buffer, encoding, ESCAPES, line_buffering=line_buffering)
    if codecs.lookup(encoding).name == "ascii":  # click would make a stream of its own
        encoding = "utf-8"
    return SafeTerminal(buffer, encoding, ESCAPES, line_buffering=True)


def escaped(error: UnicodeError) -> tuple[str, int]:
    """The handler ESCAPES of what can't be encoded: `\\xff` for the byte of an argument, else as backslashreplace."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_escape, error.object[error.start : error.end])), error.end


def _escape(char: str) -> str:
    byte = ord(char) - SURROGATE_OF_BYTE_0
    return f"\\x{byte:02x}" if 0x80 <= byte <= 0xFF else char.encode("ascii", "backslashreplace").decode("ascii")


def forget(stream: TextIO) -> None:
    """Point a stream that can't be written to nowhere, or the interpreter complains when it flushes at exit."""
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):  # it is no file: a test runner's buffer
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
