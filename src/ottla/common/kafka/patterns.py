"""Regular expressions of clients, compiled and matched by RE2 (KIP-848, KIP-1152).

RE2 matches in time linear in the text for every pattern, and rejects patterns that need too much memory, so a
hostile pattern costs no more than a long one. Apache Kafka uses RE2/J, a port of the engine with the same syntax.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.common.errors import ErrorCode, KafkaError

MAX_PATTERN_BYTES = 32_767
"""Maximum length of a pattern: strings in record keys have 16-bit lengths, and names and ids are not longer."""

MAX_PROGRAM_BYTES = 1 << 20
"""Memory limit of a compiled pattern and its caches; an eighth of RE2's default. RE2 caches the last 128 patterns."""

MAX_SHOWN_CHARACTERS = 200
"""Maximum length of a pattern in an error message."""

Matcher = Callable[[bytes], object]
"""Matcher for UTF-8 text, which saves the engine's wrapper a conversion; the result is true for a match."""


def compile_pattern(pattern: str, what: str) -> Matcher:
    """Compile a matcher for whole texts. Raises KafkaError INVALID_REGULAR_EXPRESSION; `what` begins its message."""
    encoded = pattern.encode()
    if len(encoded) > MAX_PATTERN_BYTES:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"{what} has {len(encoded)} bytes, more than {MAX_PATTERN_BYTES}.",
        )
    import re2  # imported here: only few clients use patterns, and the import delays the start

    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_PROGRAM_BYTES
    try:
        matcher: Matcher = re2.compile(encoded, options).fullmatch
    except re2.error as error:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"{what} `{pattern[:MAX_SHOWN_CHARACTERS]}` is not a valid regular expression: "
            f"{_reason(error)[:MAX_SHOWN_CHARACTERS]}.",
        ) from error
    return matcher


def _reason(error: Exception) -> str:
    reason = error.args[0] if error.args else "unknown"
    return reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
