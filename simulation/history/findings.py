"""What becomes of a broken rule: it ends the run, or is counted where losses are allowed and may explain it."""

from __future__ import annotations

from collections import Counter

from simulation.checkers import Violation

UNFORGIVABLE = frozenset({"phantom"})
"""What no loss explains."""


class Findings:
    """Of one run or round, shared by all that judge it."""

    def __init__(self, *, allow_loss: bool = False) -> None:
        """`allow_loss`: the run takes more replicas than the promises cover."""
        self._allow_loss = allow_loss
        self.forgiven: Counter[str] = Counter()
        """Violations that `allow_loss` forgave, by rule."""

    def broken(self, rule: str, what: str) -> None:
        """A promise was broken. Raises Violation, unless it is forgiven."""
        if not self._allow_loss or rule in UNFORGIVABLE:
            raise Violation(f"{rule}: {what}")
        self.forgiven[rule] += 1
