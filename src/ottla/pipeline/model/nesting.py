"""Limit on the nesting of a statement, checked before Spark parses it.

Spark's parser is recursive. It refuses a statement that is too deep for its stack, but first retries it in several
ways. With ten thousand parentheses its JVM runs out of memory meanwhile: for minutes it answers no request and no
interrupt.
"""

from __future__ import annotations

from itertools import accumulate

from ottla.common.errors import OperatorError

MAX_NESTING = 500
"""Parentheses that are open at once, including those in texts and comments; Spark's stack ends between 200 and 800."""


def require_shallow(statement: str, what: str = "the statement") -> None:
    """Raise OperatorError for a statement that is nested deeper; `what` names the statement in the message."""
    steps = ((character == "(") - (character == ")") for character in statement)
    if max(accumulate(steps), default=0) > MAX_NESTING:
        raise OperatorError(
            f"{what} has more than {MAX_NESTING} parentheses open at once, which is too deep for Spark: use WITH, "
            "or split it into several statements"
        )
