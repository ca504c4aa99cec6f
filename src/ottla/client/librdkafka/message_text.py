"""Text of messages of confluent-kafka by a template, a list at a time, without an object of our own for a record.

A template is a sequence of bytes and of names of `FIELDS`. It is evaluated by columns: one list for each field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, repeat
from typing import Any

from ottla.client.librdkafka.consumer import TIMESTAMP_TYPES

Messages = Sequence[Any]
"""Messages of `confluent_kafka`, without errors."""
Render = Callable[[Messages], bytes]

FIELDS: dict[str, Callable[[Messages], list[bytes | None]]] = {
    "topic": lambda messages: [message.topic().encode() for message in messages],
    "partition": lambda messages: [b"%d" % message.partition() for message in messages],
    "offset": lambda messages: [b"%d" % message.offset() for message in messages],
    "timestamp": lambda messages: [
        b"%d" % timestamp if kind in TIMESTAMP_TYPES else None
        for kind, timestamp in [message.timestamp() for message in messages]
    ],
    "key": lambda messages: [message.key() for message in messages],
    "value": lambda messages: [message.value() for message in messages],
    "key_size": lambda messages: [b"%d" % len(message.key() or b"") for message in messages],
    "value_size": lambda messages: [b"%d" % len(message.value() or b"") for message in messages],
}


def make_renderer(pieces: Sequence[bytes | str], null: bytes) -> Render:
    """Return the function that renders a list of messages by a template; `null` is the text of null."""

    def column(piece: bytes | str, messages: Messages) -> Iterable[bytes]:
        if isinstance(piece, bytes):
            return repeat(piece, len(messages))
        found = FIELDS[piece](messages)
        return [null if text is None else text for text in found] if None in found else found  # type: ignore[return-value]

    def render(messages: Messages) -> bytes:
        return b"".join(chain.from_iterable(zip(*[column(piece, messages) for piece in pieces], strict=True)))

    return render
