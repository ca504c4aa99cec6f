"""Messages between the driver of a local run and its worker processes.

The driver sends the work of a run as pickled bytes, then task numbers. The worker answers each number with a `Result`.
Both ends run the same code and share no bytes with anything else, so pickle is safe here.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import Any

MAX_REASON_CHARS = 10_000


@dataclass(frozen=True, slots=True)
class Result:
    """Outcome of one attempt at a task; `reason` is empty if it succeeded."""

    value: Any = None
    reason: str = ""
    """Class and message of the exception, as in the last line of a traceback."""


def reason_of(error: BaseException) -> str:
    """Class and message of an exception, in the form of `Result.reason`: the class without its module."""
    (text, *_) = traceback.format_exception_only(type(error), error)
    message = text.partition(": ")[2].strip()
    name = type(error).__name__
    return (f"{name}: {message}" if message else name)[:MAX_REASON_CHARS]
