"""Rollback of a table to an older version below its loads: description and remedies."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.common.errors import OperatorError
from ottla.common.runbooks import LOAD_REFUSED


class LoadRefusedError(OperatorError):
    """A table, a stream's state or a topic does not fit to the stored offsets; nothing was committed."""

    runbook = LOAD_REFUSED


class RolledBackError(LoadRefusedError):
    """A table lacks rows of loads whose offsets it stores; nothing was committed."""


@dataclass(frozen=True, slots=True)
class Rollback:
    """A table lacks rows of loads although its offsets are past them (or the other way around)."""

    what: str
    """A sentence about the table, `it`."""
    remedy: str
    """A remedy for the operator, in the imperative."""
    is_skippable: bool = True
    """True where a load may continue without those rows, if an operator accepts that."""

    def refusal(self, location: str, *, with_option: bool = False) -> RolledBackError:
        """`with_option`: the command has --on-rollback."""
        ways = [self.remedy] if self.remedy.startswith("load into") else [self.remedy, "load into another table"]
        if with_option and self.is_skippable:
            ways.append("leave them out with --on-rollback skip")
        return RolledBackError(f"the table {location}: {self.what}; {', or '.join(ways)}")
