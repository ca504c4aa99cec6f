"""Regular expressions of queries, by RE2: matching takes time linear in the text for every pattern."""

from __future__ import annotations

from collections.abc import Callable

MAX_PROGRAM_BYTES = 1 << 20
"""Memory limit of a compiled pattern and its caches."""
MAX_REASON_CHARS = 200

Searcher = Callable[[bytes], object]
"""Searches UTF-8 text for the pattern; the result is true if it was found."""


class PatternRefused(ValueError):
    """RE2 does not accept a pattern; the message is its reason."""


def compile_search(pattern: str) -> Searcher:
    """A function that finds the pattern anywhere in a text. Raises PatternRefused."""
    import re2  # imported here: most queries have no pattern

    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_PROGRAM_BYTES
    try:
        found: Searcher = re2.compile(pattern.encode(), options).search
    except re2.error as error:
        reason = error.args[0] if error.args else "unknown"
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise PatternRefused(text[:MAX_REASON_CHARS]) from None
    return found
