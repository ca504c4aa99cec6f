"""`ottla pipeline ...` as a process of its own that dies at a step: `driver.py SETTINGS ARGUMENT...`

SETTINGS is JSON: table (its directory), folder and deaths as `deaths.Deaths` takes them. The steps are those of a load
or a snapshot, in its driver ("planned", "landing", "landed", "merging", "merged", "committed") and in the workers
("reading" before a task has read anything, "written" after it has written its files), or those of each batch of a
stream ("planned", "files", "letters", "committed") and of the workers that send it to a topic ("sending" after they
have read its rows, "sent" after the commit). Each step is also recorded with a number, "reading 2": of the task or
batch in a worker, of the occurrence in the driver. "N committing" is before the Nth step of the commit, or of the whole
command without Spark; "log committing" is when another process sees the table change.
"""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
from pyspark import TaskContext, cloudpickle

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.pipeline import deaths
from tests.pipeline.deaths import LOGS, Deaths, RecordedWork
from tests.pipeline.stream.stream_driver import wrap

from ottla.app.main import cli
from ottla.client.admin.cluster import Cluster
from ottla.pipeline.load import driver as loading
from ottla.pipeline.load.land import Counters, WrittenRange
from ottla.pipeline.local.pool import LocalSession
from ottla.pipeline.model.plan import LoadPlan
from ottla.pipeline.sinks.epochs import EpochTask, write_epoch
from ottla.pipeline.sinks.open_table import found_format
from ottla.pipeline.sinks.topic import TopicTarget
from ottla.pipeline.snapshot import run as snapshots
from ottla.pipeline.snapshot.run import SnapshotObserver
from ottla.pipeline.stores.local_store import LocalStore
from ottla.pipeline.stream import topic_results
from ottla.pipeline.stream.table_results import TableResults
from ottla.pipeline.stream.topic_results import TopicResults


def arm(planned: Sequence[dict[str, str]], table: Path) -> None:
    """Let this process die in its commit, if a death is planned there."""
    for death in planned:
        when, _, step = death["step"].rpartition(" ")
        if step != "committing":
            continue
        if when == "log":
            deaths.die_when_changed(table / LOGS[found_format(LocalStore(table)) or "delta"])
        else:
            deaths.die_before(int(when))


LAST_STEPS = {"load": "landed", "snapshot": "merged", "stream": "letters"}
"""The last step before the commit."""


def record_local_tasks(death_log: Deaths) -> None:
    """Let the tasks of the local engine record their steps."""
    run = LocalSession.run

    def recorded(
        self: LocalSession, count: int, work: Callable[[int], Any], observe: Callable[[int, Any], object] | None = None
    ) -> list[Any]:
        return run(self, count, RecordedWork(work, death_log), observe)

    type.__setattr__(LocalSession, "run", recorded)


def main(settings: dict[str, Any], arguments: Sequence[str]) -> None:
    death_log = Deaths(Path(settings["folder"]), settings["deaths"])
    table, command = Path(settings["table"]), arguments[0]
    armed = threading.Event()

    numbers: Counter[str] = Counter()

    def reach(step: str) -> None:
        death_log.reach_numbered(step, numbers[step])
        numbers[step] += 1
        if step == LAST_STEPS[command] and not armed.is_set():
            armed.set()
            arm(settings["deaths"], table)

    class StepRecorder(SnapshotObserver):
        def planned(self, plan: LoadPlan) -> None:
            reach("planned")

        def landing(self, plan: LoadPlan, counters: Counters | None) -> None:
            reach("landing")

        def landed(self, rows: Sequence[WrittenRange]) -> None:
            reach("landed")

        def merging(self, buckets: int, counters: Counters | None) -> None:
            reach("merging")

        def merged(self) -> None:
            reach("merged")

        def committed(self, version: int) -> None:
            reach("committed")

    class TaskCluster(Cluster):
        """The cluster of a task; it is opened after the files, so its close follows their completion."""

        def __enter__(self) -> Cluster:
            self._record("reading")
            return super().__enter__()

        def __exit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
        ) -> None:
            if kind is None:
                self._record("written")
            super().__exit__(kind, error, trace)

        def _record(self, step: str) -> None:
            task = TaskContext.get()
            if task is not None:
                death_log.reach_numbered(step, task.partitionId())

    def write_recorded_epoch(target: TopicTarget, task: EpochTask, batches: Iterable[pa.RecordBatch]) -> int:
        def recorded_batches() -> Iterator[pa.RecordBatch]:
            yield from batches
            death_log.reach_numbered("sending", task.epoch)

        rows = write_epoch(target, task, recorded_batches())
        death_log.reach_numbered("sent", task.epoch)
        return rows

    cloudpickle.register_pickle_by_value(deaths)
    vars(topic_results).update(write_epoch=write_recorded_epoch)
    record_local_tasks(death_log)
    cluster = Cluster if "local" in arguments else TaskCluster
    vars(loading).update(Observer=StepRecorder, Cluster=cluster)
    vars(snapshots).update(SnapshotObserver=StepRecorder, Cluster=cluster)
    for results in (TableResults, TopicResults):
        wrap(results, "prepare", reach, "planned", "files")
        wrap(results, "commit", reach, "letters", "committed")
    if command not in LAST_STEPS:
        arm(settings["deaths"], table)
    cli(["pipeline", *arguments])


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), sys.argv[2:])
