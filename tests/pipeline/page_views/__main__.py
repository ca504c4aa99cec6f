"""`make page-views`: five million page views through every stream of examples/streams, against plain Python.

    python -m tests.pipeline.page_views [--views 5000000] [--runs 5] [--seed 1] [--keep DIRECTORY]

It starts a broker and a Spark session of its own; five million views need about ten gigabytes of memory and five of
disk. Exit code 0: every row is correct; 1: some rows differ, and examples are printed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from examples.streams.page_views import a_day
from rich.console import Console
from rich.table import Table
from tests.pipeline.page_views.trial import Outcome, Trial

from ottla.pipeline.spark.session import open_session
from ottla.testing import Broker

SHOWN = 3
"""Printed rows of each kind of difference."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--views", type=int, default=5_000_000)
    parser.add_argument("--runs", type=int, default=5, help="parts in which the day comes (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--master", default="local[*]")
    parser.add_argument("--memory", default="4g", help="of the driver's JVM (default: %(default)s)")
    parser.add_argument("--keep", type=Path, help="where tables and checkpoints stay")
    arguments = parser.parse_args()
    console = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 120)
    started = time.monotonic()
    with ExitStack() as stack:
        lake = arguments.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ottla-page-views-")))
        day = a_day(arguments.views, arguments.seed)
        console.print(f"{time.monotonic() - started:5.0f} s  a day of {arguments.views:,} views, seed {arguments.seed}")
        broker = stack.enter_context(Broker())
        settings = {"spark.driver.memory": arguments.memory, "spark.sql.shuffle.partitions": "4"}
        spark = stack.enter_context(open_session(arguments.master, "ottla page views", settings))
        trial = Trial(
            spark,
            broker.bootstrap_servers,
            lake.absolute(),
            lambda text: console.print(f"{time.monotonic() - started:5.0f} s  {text}"),
        )
        outcomes = trial.run(day, arguments.runs)
    console.print(as_table(outcomes))
    for outcome in outcomes:
        for kind in ("missing", "wrong"):
            for row in getattr(outcome, kind)[:SHOWN]:
                console.print(f"{outcome.name}: {kind}: {row}", markup=False)
    return 0 if all(outcome.is_equal for outcome in outcomes) else 1


def as_table(outcomes: list[Outcome]) -> Table:
    table = Table("what")
    for name in ("records", "too late", "rows", "doubled", "missing", "wrong", "seconds", "records/s"):
        table.add_column(name, justify="right")
    table.add_column("equal")
    for one in outcomes:
        counts = (one.records, one.late, one.rows, one.doubled, len(one.missing), len(one.wrong))
        rate = one.records / one.seconds if one.seconds else 0
        equal = "yes" if one.is_equal else "NO"
        table.add_row(one.name, *(f"{count:,}" for count in counts), f"{one.seconds:.1f}", f"{rate:,.0f}", equal)
    return table


if __name__ == "__main__":
    raise SystemExit(main())
