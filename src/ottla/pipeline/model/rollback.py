"""A table that was put back to an older version under its loads: what that means, and what an operator can do."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.common.errors import OperatorError


class RolledBackError(OperatorError):
    """A table lacks rows of loads whose offsets it keeps; nothing was committed."""


@dataclass(frozen=True, slots=True)
class Rollback:
    """Rows of loads are not in a table, and its offsets are those behind them (or the other way around)."""

    what: str
    """A sentence about the table, `it`."""
    remedy: str
    """What an operator can do, in the imperative."""
    can_go_on: bool = True
    """True where a load may leave it so, when an operator accepts that."""

    def refusal(self, location: str, *, with_option: bool = False) -> RolledBackError:
        """`with_option`: the command has --on-rollback."""
        ways = [self.remedy] if self.remedy.startswith("load into") else [self.remedy, "load into another table"]
        if with_option and self.can_go_on:
            ways.append("leave them out with --on-rollback skip")
        return RolledBackError(f"the table {location}: {self.what}; {', or '.join(ways)}")
