"""The size of searches and exhaustive models: short by default, full with `OTTLA_TESTS=all`.

A search names both sizes where it is declared: `max_examples=size(10, 100)`. The short form runs the same code with
fewer examples, seeds or steps, about a tenth. Tests of planted defects search until they find the defect in both forms.
"""

from __future__ import annotations

import os
from typing import TypeVar

T = TypeVar("T")


def full() -> bool:
    """Whether searches run in full: `make test-all` and the full CI set `OTTLA_TESTS=all`."""
    return os.environ.get("OTTLA_TESTS") == "all"


def size(short: T, full_size: T) -> T:
    """The size of a search: a number of examples, seeds, steps or days."""
    return full_size if full() else short
