"""Cache of responses that stay the same while their inputs do: Metadata, ApiVersions.

Clients repeat the same requests, and a large cluster takes milliseconds to describe. A response is found by the
version, the listener and the bytes of the request, before those are parsed.

Invariants: everything is dropped as soon as one of the input objects is replaced, so they must be immutable; requests
and responses together stay below `MAX_BYTES`. Not cached: responses with an error, except `LASTING` ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_
from struct import Struct

from ottla.common.errors import ErrorCode
from ottla.common.platform.channel import Part
from ottla.protocol.framing import SIZE_BYTES

MAX_BYTES = 16 * 1024 * 1024
JOINED_BYTES = 64 * 1024
"""Up to this size a copy is cheaper than a second buffer in the write."""

_HEAD = Struct(">ii")

LASTING = frozenset({ErrorCode.LEADER_NOT_AVAILABLE})
"""Errors that depend only on the inputs, counted on each use. All others may have vanished on a retry."""

Key = tuple[int, str, bytes]
"""Version, listener, bytes of the request's body."""


class ResponseCache:
    """The responses of one API; owned by the dispatcher."""

    __slots__ = ("_answers", "_bytes", "_cache_inputs", "errors")

    def __init__(self) -> None:
        self.errors: dict[Key, Sequence[int]] = {}
        """Error codes in the responses that have some."""
        self._answers: dict[Key, bytes] = {}
        self._cache_inputs: tuple[object, ...] = ()
        self._bytes = 0

    def find(self, cache_inputs: tuple[object, ...], key: Key, correlation_id: int) -> list[Part] | None:
        """The response with another correlation id, None if it is not cached."""
        if len(cache_inputs) != len(self._cache_inputs) or not all(map(is_, cache_inputs, self._cache_inputs)):
            self._cache_inputs = cache_inputs
            self._drop()
            return None
        answer = self._answers.get(key)
        if answer is None:
            return None
        head = _HEAD.pack(len(answer) + _HEAD.size - SIZE_BYTES, correlation_id)
        return [head + answer] if len(answer) <= JOINED_BYTES else [head, answer]

    def add(self, key: Key, frame: bytes, errors: Sequence[int] = ()) -> None:
        """Cache a whole response frame, with the error codes in it, for the inputs of the last `find`."""
        if not LASTING.issuperset(errors):
            return
        size = len(frame) + len(key[2])
        if self._bytes + size > MAX_BYTES:
            self._drop()
        if size <= MAX_BYTES:
            self._answers[key] = frame[_HEAD.size :]
            self._bytes += size
            if errors:
                self.errors[key] = errors

    def _drop(self) -> None:
        self._answers.clear()
        self.errors.clear()
        self._bytes = 0
