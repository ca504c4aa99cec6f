"""Suggestions for misspelled names."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean X?` with the most similar known name, or nothing when none is similar."""
    import difflib  # here, since it is wanted after a mistake only and each import delays the start

    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.75)
    return f"; did you mean {found[0]}?" if found else ""
