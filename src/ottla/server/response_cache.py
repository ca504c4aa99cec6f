"""Responses of one API that are the same as long as what they depend on is: Metadata, ApiVersions.

Clients ask for the same again and again, and a large cluster takes milliseconds to describe. A response is found by the
version, the listener and the bytes of the request, before those are parsed.

Invariants: everything is dropped as soon as one of the objects that the responses depend on is another one, so they
must be immutable; requests and responses together stay below `MAX_BYTES`. Left out: responses with an error, which
count each time.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import is_
from struct import Struct

from ottla.common.channel import Part
from ottla.protocol.framing import SIZE_BYTES
from ottla.server.context import BrokerContext

MAX_BYTES = 16 * 1024 * 1024
JOINED_BYTES = 64 * 1024
"""Up to here a copy is cheaper than a second buffer in the write."""

_HEAD = Struct(">ii")

Basis = Callable[[BrokerContext], tuple[object, ...]]
"""The objects that responses depend on, beside the request."""

Key = tuple[int, str, bytes]
"""Version, listener, bytes of the request's body."""


class ResponseCache:
    """What one API answered; belongs to the dispatcher."""

    __slots__ = ("_answers", "_basis", "_bytes")

    def __init__(self) -> None:
        self._answers: dict[Key, bytes] = {}
        self._basis: tuple[object, ...] = ()
        self._bytes = 0

    def find(self, basis: tuple[object, ...], key: Key, correlation_id: int) -> list[Part] | None:
        """The response with another correlation id, None when it must be made."""
        if len(basis) != len(self._basis) or not all(map(is_, basis, self._basis)):
            self._basis = basis
            self._drop()
            return None
        answer = self._answers.get(key)
        if answer is None:
            return None
        head = _HEAD.pack(len(answer) + _HEAD.size - SIZE_BYTES, correlation_id)
        return [head + answer] if len(answer) <= JOINED_BYTES else [head, answer]

    def add(self, key: Key, frame: bytes) -> None:
        """Remember a whole response frame for the basis that `find` was given last."""
        size = len(frame) + len(key[2])
        if self._bytes + size > MAX_BYTES:
            self._drop()
        if size <= MAX_BYTES:
            self._answers[key] = frame[_HEAD.size :]
            self._bytes += size

    def _drop(self) -> None:
        self._answers.clear()
        self._bytes = 0
