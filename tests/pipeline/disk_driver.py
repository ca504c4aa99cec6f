"""Operations on tables of each format on a full disk, or in an unwritable directory; see `test_full_disk.py`.

Called with a directory and `full`, `locked` or `unwritable`. Prints one JSON object: by format and operation None, or
the class and message of the error.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.pipeline.memory_cluster import MemoryCluster
from tests.pipeline.sinks.loads import TOPIC, commit, load, make_cluster, plan_load

from ottla.common.errors import OperatorError
from ottla.pipeline.load.compact import compact
from ottla.pipeline.load.land import LandSettings, land_task
from ottla.pipeline.operations.status import find_tables, row_counts
from ottla.pipeline.operations.vacuum import vacuum
from ottla.pipeline.sinks.open_table import open_table
from ottla.pipeline.sinks.table import Table, files_from_json

KINDS = ("delta", "iceberg", "parquet")
ROWS = 50


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return


def cluster(rounds: int) -> MemoryCluster:
    made = make_cluster(ROWS)
    for _ in range(rounds):
        made.partitions[TOPIC, 0].append_values([b"more" * 500] * ROWS)
    return made


def land(directory: Path) -> None:
    """The task of a load, which returns its error in its row, and the commit."""
    source, table = cluster(2), open_table(directory)
    plan = plan_load(source, table)
    settings = LandSettings(source.open, table.layout(), table.dead_letters().layout(), "load")
    rows = [land_task(number, task, settings) for number, task in enumerate(plan.tasks)]
    for row in rows:
        if row.error:
            assert row.error_kind == "operator"
            raise OperatorError(row.error)
    commit(table, plan, [file for row in rows for file in files_from_json(row.files)], "load")


def of_table(location: Path, work: Callable[[Table], object]) -> None:
    work(open_table(location))


def make(root: Path, kind: str) -> None:
    load(cluster(0), open_table(root / f"new-{kind}", format=kind))


def main(root: Path, trouble: str) -> None:
    for kind in KINDS:
        for rounds in range(2):
            load(cluster(rounds), open_table(root / kind, format=kind))
    if trouble == "full":
        fill(root / "ballast")
    if trouble == "locked":
        for kind in KINDS:
            (root / kind).chmod(0)
    if trouble == "unwritable":
        for directory, _, _ in os.walk(root):
            os.chmod(directory, 0o555)
    found: dict[str, list[str] | None] = {}

    def attempt(name: str, work: Callable[[], object]) -> None:
        try:
            work()
            found[name] = None
        except Exception as error:  # the test checks it
            found[name] = [type(error).__name__, str(error)]

    for kind in KINDS:
        table = root / kind
        attempt(f"{kind} load", partial(land, table))
        attempt(f"{kind} compact", partial(of_table, table, partial(compact, target_bytes=1 << 20)))
        attempt(f"{kind} vacuum", partial(of_table, table, partial(vacuum, retention=timedelta(0))))
        attempt(f"{kind} rows", partial(of_table, table, row_counts))
        attempt(f"{kind} new", partial(make, root, kind))
    if trouble == "full":
        (root / "ballast").unlink()
        for kind in KINDS:
            land(root / kind)
            assert row_counts(open_table(root / kind)) == {(TOPIC, 0): 3 * ROWS, (TOPIC, 1): ROWS}
            make(root, kind)
            assert row_counts(open_table(root / f"new-{kind}")) == {(TOPIC, 0): ROWS, (TOPIC, 1): ROWS}
    if trouble == "locked":
        reasons = find_tables(root)
        found["found"] = [str(reasons[str(root / kind)]) for kind in KINDS]
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
