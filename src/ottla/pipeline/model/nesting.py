"""How deep a statement may be nested, told before Spark parses it.

Its parser is recursive. What is too deep for its stack it refuses, but tries it in several ways before, and with ten
thousand parentheses its JVM runs out of memory on the way: for minutes it answers nobody, an interrupt neither.
"""

from __future__ import annotations

from itertools import accumulate

from ottla.common.errors import OperatorError

MAX_NESTING = 500
"""Parentheses that are open at once, in texts and comments too; Spark's own stack ends between 200 and 800."""


def require_shallow(statement: str, what: str = "the statement") -> None:
    """Raise OperatorError for a statement that is nested deeper; `what` it is stands in the sentence."""
    steps = ((character == "(") - (character == ")") for character in statement)
    if max(accumulate(steps), default=0) > MAX_NESTING:
        raise OperatorError(
            f"{what} has more than {MAX_NESTING} parentheses open at once, which is too deep for Spark: take it "
            "apart, by WITH or into several"
        )
