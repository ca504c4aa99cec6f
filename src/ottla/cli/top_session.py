"""The terminal of `ottla top`: a thread reads the cluster, this one reads keys and draws.

Invariants: a request that hangs delays no key. The terminal is restored however the session ends. After a failure the
last reading stays on the screen with the reason, and the next refresh tries again.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from rich.console import Console, Group
from rich.live import Live

from ottla.cli.top_screen import ScreenState, frame
from ottla.cli.top_views import TopReading
from ottla.common.errors import OttlaError

KEY_BYTES = 64
"""Bytes of keys that are read at once."""


class _Update(NamedTuple):
    reading: TopReading
    outage: str | None
    clock_text: str


class RefreshThread(threading.Thread):
    """Reads the cluster every `interval_s`, and wakes the session by a byte in a pipe."""

    def __init__(self, read: Callable[[], TopReading], first: TopReading, interval_s: float, wake: int) -> None:
        super().__init__(daemon=True, name="refresh")
        self._read = read
        self._interval_s = interval_s
        self._wake = wake
        self._stop = threading.Event()
        self._lock = threading.Lock()
        """Held to use the pipe, which is closed after `stop`."""
        self.failure: BaseException | None = None
        """An unexpected error, which ends the session."""
        self.update = _Update(first, None, _clock_text())

    def stop(self) -> None:
        """Read no more; does not wait for a request that is under way."""
        with self._lock:
            self._stop.set()

    def run(self) -> None:
        """Refresh until the end."""
        while not self._stop.wait(self._interval_s):
            try:
                self.update = _Update(self._read(), None, _clock_text())
            except OttlaError as error:
                self.update = self.update._replace(outage=str(error))
            except BaseException as error:
                self.failure = error
            with self._lock, suppress(BlockingIOError):  # it is awake
                if not self._stop.is_set():
                    os.write(self._wake, b".")
            if self.failure is not None:
                return


def run_session(read: Callable[[], TopReading], first: TopReading, interval_s: float, state: ScreenState) -> None:
    """Draw until the user quits. Raises errors of the refresh, except failures of the cluster."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    thread = RefreshThread(read, first, interval_s, wake)
    console = Console(file=sys.__stdout__)
    try:
        with _keys_unbuffered(sys.stdin.fileno()), _woken_by_resize(wake):
            thread.start()
            _draw(console, thread, state, woken)
    finally:
        thread.stop()
        os.close(wake)
        os.close(woken)
    if thread.failure is not None:
        raise thread.failure


def _draw(console: Console, thread: RefreshThread, state: ScreenState, woken: int) -> None:
    keys = sys.stdin.fileno()
    shown = thread.update
    with Live(console=console, screen=True, auto_refresh=False, vertical_overflow="crop") as live:
        while not state.quits and thread.failure is None:
            if not state.paused:
                shown = thread.update
            lines = frame(*shown, state, (console.width, console.height))
            live.update(Group(*lines), refresh=True)
            ready, _, _ = select.select([keys, woken], [], [])
            if woken in ready:
                os.read(woken, KEY_BYTES)
            if keys in ready:
                data = os.read(keys, KEY_BYTES)
                if not data:  # the terminal is gone
                    return
                for key in _keys(data.decode(errors="replace")):
                    state.press(key)


def _keys(text: str) -> Iterator[str]:
    """The keys in the input of a terminal: one character, or an escape sequence up to its last letter."""
    position = 0
    while position < len(text):
        end = position + 1
        if text[position] == "\x1b" and text[end : end + 1] in ("[", "O"):
            end += 1
            while end < len(text) and not (text[end].isalpha() or text[end] == "~"):
                end += 1
            end = min(end + 1, len(text))
        yield text[position:end]
        position = end


@contextmanager
def _keys_unbuffered(descriptor: int) -> Iterator[None]:
    """Keys without Enter and without echo; Ctrl-C still interrupts."""
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


@contextmanager
def _woken_by_resize(wake: int) -> Iterator[None]:
    def resized(number: int, _: object) -> None:
        with suppress(BlockingIOError):  # it is awake
            os.write(wake, b"r")

    before = signal.signal(signal.SIGWINCH, resized)
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)


def _clock_text() -> str:
    return time.strftime("%H:%M:%S")
