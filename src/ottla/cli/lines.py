"""Lines of standard input or of a file, read so that something else can be done while nobody types."""

from __future__ import annotations

import select
from collections.abc import Callable, Iterator
from io import BufferedReader

CHUNK_BYTES = 64 * 1024
IDLE_INTERVAL_S = 0.2


class LineReader:
    r"""An iterator over lines without their ends, which are `\n` or `\r\n`; calls `idle` while it waits."""

    def __init__(self, stream: BufferedReader, idle: Callable[[], None]) -> None:
        self._stream = stream
        self._idle = idle
        self.read_bytes = 0

    def __iter__(self) -> Iterator[bytes]:
        started: list[bytes] = []
        for chunk in self._chunks():
            *ended, rest = chunk.split(b"\n")
            for line in ended:
                if started:
                    line = b"".join([*started, line])
                    started.clear()
                yield line.removesuffix(b"\r")
            if rest:
                started.append(rest)
        if started:
            yield b"".join(started)

    def _chunks(self) -> Iterator[bytes]:
        try:
            descriptor = self._stream.fileno()
        except (OSError, ValueError):  # no file but a buffer, which never waits
            descriptor = None
        while True:
            while descriptor is not None and not select.select([descriptor], [], [], IDLE_INTERVAL_S)[0]:
                self._idle()
            chunk = self._stream.read1(CHUNK_BYTES)
            if not chunk:
                return
            self.read_bytes += len(chunk)
            yield chunk
