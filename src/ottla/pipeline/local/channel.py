"""Messages between the driver of a local run and its worker processes.

The driver sends the work of a run as pickled bytes, then task numbers. The worker answers each number with a `Result`.
Both ends run the same code and share no bytes with anything else, so pickle is safe here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

MAX_REASON_CHARS = 10_000


@dataclass(frozen=True, slots=True)
class Result:
    """Outcome of one attempt at a task; `reason` is empty if it succeeded."""

    value: Any = None
    reason: str = ""
    """Class, without its module, and message of the exception, as in the last line of a traceback."""


def reason_of(error: BaseException) -> str:
    """Class and first line of the message of an exception, in the form of `Result.reason`."""
    name = type(error).__name__
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return (f"{name}: {line}" if line else name)[:MAX_REASON_CHARS]
