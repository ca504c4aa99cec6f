"""Numbers of samples, and the types that hold them unchanged."""

from __future__ import annotations


def is_exact_double(number: int) -> bool:
    """Whether a double holds this integer unchanged."""
    try:
        return int(float(number)) == number
    except OverflowError:
        return False
