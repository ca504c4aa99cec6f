"""Suggestions for misspelled names."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean X?` with the most similar known name, or nothing if none is similar."""
    import difflib  # imported here: only needed after a mistake, and the import delays the start

    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.75)
    return f"; did you mean {found[0]}?" if found else ""
