"""Tag sections (KIP-482) for the hand-written parsers: the header, Produce and Fetch."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.common.errors import ProtocolError
from ottla.common.platform.disk import Buffer
from ottla.record.varint import read_unsigned_varint

MAX_TAGGED_FIELDS = 16
"""Maximum number in one section; Kafka's messages have three at most. More is a flood (CVE-2026-111115)."""


def iter_tags(buffer: Buffer, position: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield (tag, start, end) of every field of the section at `position`; raises ProtocolError if one exceeds `end`.

    The last item has the tag -1 and its `start` is the position after the section.
    """
    count, position = read_unsigned_varint(buffer, position, end)
    if count > MAX_TAGGED_FIELDS:
        raise ProtocolError(f"{count} tagged fields in one section exceed the limit of {MAX_TAGGED_FIELDS}")
    for _ in range(count):
        tag, position = read_unsigned_varint(buffer, position, end)
        size, position = read_unsigned_varint(buffer, position, end)
        if size > end - position:
            raise ProtocolError("a tagged field exceeds the remaining bytes")
        yield tag, position, position + size
        position += size
    yield -1, position, position


def skip_tags(buffer: Buffer, position: int, end: int) -> int:
    """Return the position after the tag section at `position`, with any contents; raises ProtocolError."""
    if position < end and not buffer[position]:
        return position + 1
    for _, start, _ in iter_tags(buffer, position, end):
        position = start
    return position
