"""Preparation of the three standard streams before a command runs.

Descriptors 0 to 2 are open afterwards, so that no other file or socket gets one of them. Any text can be written:
characters outside the encoding are escaped, and arguments with invalid UTF-8 are written as their bytes. Text for a
terminal contains no control sequences. Libraries that need them (rich) write to `sys.__stdout__` or `sys.__stderr__`;
bytes are written unchanged through `sys.stdout.buffer`.
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
"""Surrogates above it represent invalid UTF-8 bytes from 0x80 (PEP 383)."""


class SafeTerminal(io.TextIOWrapper):
    """A terminal stream that escapes control characters."""

    def write(self, text: str) -> int:
        """Write `text`; see `escape_control_chars`."""
        return super().write(escape_control_chars(text))


class RawOutput(io.FileIO):
    """Descriptor 1. Its errors contain its name: otherwise a full disk would be attributed to an input file."""

    def write(self, data: Any) -> int | None:  # type: ignore[override]  # typeshed omits None
        """Write a part of `data`; returns its size. Raises OSError with `filename` STANDARD_OUTPUT."""
        try:
            return super().write(data)
        except OSError as error:
            error.filename = STANDARD_OUTPUT
            raise


def prepare_streams() -> None:
    """Prepare the standard streams. Only the process entry calls this."""
    codecs.register_error(ESCAPES, escaped)
    for descriptor in (0, 1, 2):
        _reopen_if_closed(descriptor)
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)))
    sys.stdout = _safe(io.BufferedWriter(RawOutput(1, "w", closefd=False)), sys.stdout)
    sys.stderr = _safe(io.BufferedWriter(io.FileIO(2, "w", closefd=False)), sys.stderr, line_buffering=True)


def _reopen_if_closed(descriptor: int) -> None:
    """Open a closed descriptor. Messages are discarded; writing a result raises an error."""
    try:
        os.fstat(descriptor)
    except OSError:
        lowest = os.open(os.devnull, os.O_WRONLY if descriptor == 2 else os.O_RDONLY)
        os.set_inheritable(lowest, True)


def _safe(buffer: io.BufferedWriter, stream: TextIO | None, line_buffering: bool = False) -> TextIO:
    """A text stream on `buffer` in the encoding of `stream`, which is None if Python found the descriptor closed."""
    encoding = stream.encoding if stream is not None else "utf-8"
    if not buffer.isatty():
        return io.TextIOWrapper(buffer, encoding, ESCAPES, line_buffering=line_buffering)
    if codecs.lookup(encoding).name == "ascii":  # click would create its own stream
        encoding = "utf-8"
    return SafeTerminal(buffer, encoding, ESCAPES, line_buffering=True)


def escaped(error: UnicodeError) -> tuple[str, int]:
    """Codec error handler ESCAPES: `\\xff` for an argument byte, otherwise as backslashreplace."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_escape, error.object[error.start : error.end])), error.end


def _escape(char: str) -> str:
    byte = ord(char) - SURROGATE_OF_BYTE_0
    return f"\\x{byte:02x}" if 0x80 <= byte <= 0xFF else char.encode("ascii", "backslashreplace").decode("ascii")


def forget(stream: TextIO) -> None:
    """Redirect a broken stream to the null device, or the interpreter reports an error when it flushes at exit."""
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):  # not a file but a test runner's buffer
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
