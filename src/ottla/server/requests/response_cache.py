"""Responses of one API that are the same as long as what they depend on is: Metadata, ApiVersions.

Clients ask for the same again and again, and a large cluster takes milliseconds to describe. A response is found by the
version, the listener and the bytes of the request, before those are parsed.

Invariants: everything is dropped as soon as one of the objects that the responses depend on is another one, so they
must be immutable; requests and responses together stay below `MAX_BYTES`. Left out: responses with an error, but for
`LASTING` ones.
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
"""Up to here a copy is cheaper than a second buffer in the write."""

_HEAD = Struct(">ii")

LASTING = frozenset({ErrorCode.LEADER_NOT_AVAILABLE})
"""Errors that describe what is remembered, and count each time. All others may be gone when a client asks again."""

Key = tuple[int, str, bytes]
"""Version, listener, bytes of the request's body."""


class ResponseCache:
    """What one API answered; belongs to the dispatcher."""

    __slots__ = ("_answers", "_bytes", "_cache_inputs", "errors")

    def __init__(self) -> None:
        self.errors: dict[Key, Sequence[int]] = {}
        """Error codes in the responses that have some."""
        self._answers: dict[Key, bytes] = {}
        self._cache_inputs: tuple[object, ...] = ()
        self._bytes = 0

    def find(self, cache_inputs: tuple[object, ...], key: Key, correlation_id: int) -> list[Part] | None:
        """The response with another correlation id, None when it must be made."""
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
        """Remember a whole response frame, with the error codes in it, for the basis that `find` was given last."""
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
