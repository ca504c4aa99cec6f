"""Seeds that differ from day to day, so that CI does not repeat the same few runs for ever.

`OTTLA_SIM_SEED` is the first of them. `.ci/run` sets it to the date and prints it; with the same value the same runs
are repeated. Without it they begin at 1.
"""

from __future__ import annotations

import os

FIRST_SEED = int(os.environ.get("OTTLA_SIM_SEED") or 1)


def seeds_of_the_day(count: int) -> range:
    """`count` seeds from `OTTLA_SIM_SEED` on."""
    return range(FIRST_SEED, FIRST_SEED + count)
