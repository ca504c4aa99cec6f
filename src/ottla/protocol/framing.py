"""Frames: every request and response is a 32-bit big-endian size and that many bytes."""

from __future__ import annotations

from struct import Struct

from ottla.common.errors import ProtocolError
from ottla.common.platform.disk import Buffer

SIZE_BYTES = 4
DEFAULT_MAX_FRAME_BYTES = 104_857_600
"""Kafka's default of `socket.request.max.bytes`."""

SIZE = Struct(">i")


def frame_length(buffer: Buffer, position: int, max_bytes: int = DEFAULT_MAX_FRAME_BYTES) -> int:
    """Return the size of the frame with its prefix at `position`; the caller ensures that the 4 bytes exist.

    Raises ProtocolError when it is negative or above `max_bytes`, before memory is allocated for it (CVE-2022-34917).
    """
    size: int = SIZE.unpack_from(buffer, position)[0]
    if size < 0 or size > max_bytes:
        raise ProtocolError(f"the frame size {size} is outside [0, {max_bytes}]")
    return size
