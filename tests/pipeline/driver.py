"""`ottla pipeline ...` as a process of its own that dies at a step: `driver.py SETTINGS ARGUMENT...`

SETTINGS is JSON: folder and deaths as `deaths.Deaths` takes them. The steps are those of a load, in its driver
("planned", "landing", "landed", "committed") and in the workers ("reading" before a task has anything, "written" when
its files are there). "N committing" is the one before the Nth step of the commit, or of all that a command without
Spark does; "log committing" the moment in which another process sees that the table changes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from pyspark import cloudpickle

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.pipeline import deaths
from tests.pipeline.deaths import LOGS, Deaths

from ottla.app.main import cli
from ottla.client.cluster import Cluster
from ottla.pipeline import load as loading
from ottla.pipeline.land import Counters, Landed
from ottla.pipeline.load import Observer
from ottla.pipeline.plan import LoadPlan
from ottla.pipeline.sinks.open_table import found_format
from ottla.pipeline.stores.local_store import LocalStore


def arm(planned: Sequence[dict[str, str]], table: Path) -> None:
    """Let this process die while it commits, if it is to."""
    for death in planned:
        when, _, step = death["step"].rpartition(" ")
        if step != "committing":
            continue
        if when == "log":
            deaths.die_when_changed(table / LOGS[found_format(LocalStore(table)) or "delta"])
        else:
            deaths.die_before(int(when))


def main(settings: dict[str, Any], arguments: Sequence[str]) -> None:
    told = Deaths(Path(settings["folder"]), settings["deaths"])
    table = Path(arguments[arguments.index("--table") + 1])

    class Teller(Observer):
        def planned(self, plan: LoadPlan) -> None:
            told.reach("planned")

        def landing(self, plan: LoadPlan, counters: Counters | None) -> None:
            told.reach("landing")

        def landed(self, rows: Sequence[Landed]) -> None:
            told.reach("landed")
            arm(settings["deaths"], table)

        def committed(self, version: int) -> None:
            told.reach("committed")

    class TaskCluster(Cluster):
        """A task's, which is opened behind its files, so it is closed when they are whole."""

        def __enter__(self) -> Cluster:
            if not told.is_driver():
                told.reach("reading")
            return super().__enter__()

        def __exit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
        ) -> None:
            if not told.is_driver() and kind is None:
                told.reach("written")
            super().__exit__(kind, error, trace)

    cloudpickle.register_pickle_by_value(deaths)
    vars(loading).update(Observer=Teller, Cluster=TaskCluster)
    if arguments[0] != "load":
        arm(settings["deaths"], table)
    cli(["pipeline", *arguments])


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), sys.argv[2:])
