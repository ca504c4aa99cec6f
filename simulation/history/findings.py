"""Handling of a violated rule: it ends the run, or is counted if losses are allowed and may explain it."""

from __future__ import annotations

from collections import Counter

from simulation.checkers import Violation

UNFORGIVABLE = frozenset({"phantom"})
"""Rules whose violation no loss explains."""


class Findings:
    """Findings of one run or round, shared by all its checkers."""

    def __init__(self, *, allow_loss: bool = False) -> None:
        """`allow_loss`: the run fails more replicas than the guarantees cover."""
        self._allow_loss = allow_loss
        self.forgiven: Counter[str] = Counter()
        """Violations excused by `allow_loss`, by rule."""

    def broken(self, rule: str, what: str) -> None:
        """A rule was violated. Raises Violation, unless it is excused."""
        if not self._allow_loss or rule in UNFORGIVABLE:
            raise Violation(f"{rule}: {what}")
        self.forgiven[rule] += 1
