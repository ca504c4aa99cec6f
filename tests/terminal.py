"""A program in a terminal of its own, for tests: keys go in, and the frames that it draws come out."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping
from types import TracebackType

TIMEOUT_S = 60.0
HOME = "\x1b[H"
"""Begins each frame of a full-screen program."""
ALTERNATE_SCREEN, NORMAL_SCREEN = "\x1b[?1049h", "\x1b[?1049l"
_CONTROLS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """`ottla` with `arguments` in a pseudo-terminal of `columns` by `lines`; a context manager."""

    def __init__(self, environment: Mapping[str, str], *arguments: str, columns: int = 80, lines: int = 24) -> None:
        self._main, self._side = pty.openpty()
        self.text = ""
        """All output so far."""
        self.resize(columns, lines)
        self.before = termios.tcgetattr(self._side)
        """Modes of the terminal before the start."""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ottla", *arguments],
            stdin=self._side,
            stdout=self._side,
            stderr=self._side,
            env={**os.environ, **environment, "TERM": "xterm-256color"},
            start_new_session=True,
        )

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._main)
        os.close(self._side)

    @property
    def modes(self) -> list[object]:
        """Present modes of the terminal."""
        return termios.tcgetattr(self._side)

    def resize(self, columns: int, lines: int) -> None:
        """Change the size; the program is not signalled, since the terminal is not its own."""
        fcntl.ioctl(self._side, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def press(self, keys: str) -> None:
        """Type these keys."""
        os.write(self._main, keys.encode())

    def frames(self) -> list[list[str]]:
        """The lines of each complete frame, without colours."""
        parts = self.text.split(HOME)[1:-1]
        return [_CONTROLS.sub("", part).split("\r\n") for part in parts]

    def wait_for(self, condition: Callable[[list[str]], bool], what: str) -> list[str]:
        """The first new frame for which `condition` is true."""
        seen = len(self.frames())
        until = time.monotonic() + TIMEOUT_S
        while True:
            found = self.frames()
            for frame in found[seen:]:
                if condition(frame):
                    return frame
            seen = len(found)
            if not self._read(until - time.monotonic()):
                last = "\n".join(found[-1]) if found else self.text
                raise AssertionError(f"no frame within {TIMEOUT_S:g} s with {what}; last:\n{last}")

    def wait(self) -> int:
        """The exit code; reads the rest of the output."""
        until = time.monotonic() + TIMEOUT_S
        while self.process.poll() is None:
            self._read(min(0.1, until - time.monotonic()))
            assert time.monotonic() < until, self.text
        while self._read(0):
            pass
        return self.process.returncode

    def _read(self, timeout_s: float) -> bool:
        ready, _, _ = select.select([self._main], [], [], max(0.0, timeout_s))
        if ready:
            self.text += os.read(self._main, 65536).decode(errors="replace")
        return bool(ready)
