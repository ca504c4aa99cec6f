"""Histograms that clients push, in the form of Prometheus: cumulative buckets, count and sum."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from ottla.metrics.series import Sample

BUCKET, SUM, COUNT = SUFFIXES = ("_bucket", "_sum", "_count")
"""What follows the name of the family in the name of a series."""


class PushedHistogram(NamedTuple):
    """`counts[i]` observations were at most `bounds[i]`; the last count is that of all observations."""

    bounds: tuple[float, ...]
    """Finite and rising."""
    counts: tuple[float, ...]
    """Rising; one more than bounds."""
    total: float | None
    """Sum of the observations; None without one, as for observations below zero."""

    @property
    def is_valid(self) -> bool:
        """False for bounds that do not rise, or do not fit the counts."""
        is_rising = all(lower < upper for lower, upper in pairwise(self.bounds))
        return is_rising and all(map(math.isfinite, self.bounds)) and len(self.counts) == len(self.bounds) + 1

    @property
    def series_count(self) -> int:
        """Series in the exposition: buckets, the count, and the sum if there is one."""
        return len(self.counts) + 1 + (self.total is not None)

    def plus(self, earlier: PushedHistogram) -> PushedHistogram:
        """Both added up; this one alone if the bounds differ, which scrapers see as a reset."""
        if earlier.bounds != self.bounds:
            return self
        counts = tuple(map(sum, zip(self.counts, earlier.counts, strict=True)))
        total = None if self.total is None or earlier.total is None else self.total + earlier.total
        return PushedHistogram(self.bounds, counts, total)

    def samples(self, labels: str) -> Iterator[Sample]:
        """The series; `labels` as in the exposition, without braces and not empty."""
        for bound, count in zip((*map(_bound_text, self.bounds), "+Inf"), self.counts, strict=True):
            yield f'{BUCKET}{{{labels},le="{bound}"}}', count
        if self.total is not None:
            yield f"{SUM}{{{labels}}}", self.total
        yield f"{COUNT}{{{labels}}}", self.counts[-1]


def _bound_text(bound: float) -> str:
    """`5` and `0.5`, as in other histograms of the exposition."""
    return str(int(bound)) if bound.is_integer() and abs(bound) < 2**53 else str(bound)
