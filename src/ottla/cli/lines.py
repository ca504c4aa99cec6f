"""Line reader for standard input or a file, with a callback while it waits for input."""

from __future__ import annotations

import select
from collections.abc import Callable, Iterator
from io import BufferedReader

CHUNK_BYTES = 256 * 1024
IDLE_INTERVAL_S = 0.2


class LineReader:
    r"""Reader of lines without their terminators `\n` or `\r\n`; calls `idle` while it waits for input."""

    def __init__(self, stream: BufferedReader, idle: Callable[[], None]) -> None:
        self._stream = stream
        self._idle = idle
        self.read_bytes = 0

    def blocks(self) -> Iterator[list[bytes]]:
        """The lines in lists, as they arrive."""
        started: list[bytes] = []
        for chunk in self._chunks():
            lines = chunk.split(b"\n")
            rest = lines.pop()
            if lines:
                if started:
                    lines[0] = b"".join([*started, lines[0]])
                    started.clear()
                if b"\r\n" in chunk or lines[0].endswith(b"\r"):
                    lines = [line.removesuffix(b"\r") for line in lines]
                yield lines
            if rest:
                started.append(rest)
        if started:
            yield [b"".join(started)]

    def _chunks(self) -> Iterator[bytes]:
        try:
            descriptor = self._stream.fileno()
        except (OSError, ValueError):  # an in-memory buffer, which never blocks
            descriptor = None
        while True:
            while descriptor is not None and not select.select([descriptor], [], [], IDLE_INTERVAL_S)[0]:
                self._idle()
            chunk = self._stream.read1(CHUNK_BYTES)
            if not chunk:
                return
            self.read_bytes += len(chunk)
            yield chunk
