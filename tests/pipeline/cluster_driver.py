"""Commands of `ottla pipeline` on a cluster, all in one session: `cluster_driver.py SETTINGS`

SETTINGS is JSON: `master`; `conf` of the session; `commands`, lists of arguments to which `--json` and `--master` are
added; `graves`, a directory, or nothing. With it the first load and the first stream each lose a worker of Spark's, by
`worker_deaths.Killer`. Prints a JSON list of the commands' outputs; for a refused command its error message.
"""

from __future__ import annotations

import importlib
import json
import sys
from contextlib import nullcontext
from pathlib import Path
from types import TracebackType
from typing import Any

from click.testing import CliRunner
from pyspark import cloudpickle

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.pipeline import worker_deaths
from tests.pipeline.worker_deaths import Killer

from ottla.app import main as command_line
from ottla.client.admin.cluster import Cluster
from ottla.pipeline.load import driver as loading
from ottla.pipeline.sinks.partitioned_writer import PartitionedWriter
from ottla.pipeline.sinks.table import DataFile
from ottla.pipeline.spark.session import open_session
from ottla.pipeline.stream import rows as streaming


def arm(graves: Path) -> None:
    """Let a worker die after a task of a load has read its range, or one of a stream has written its files."""
    loads, streams = Killer(graves / "load"), Killer(graves / "stream", machine=True)

    class TaskCluster(Cluster):
        """The cluster of a task; it is closed after the read."""

        def __exit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
        ) -> None:
            if kind is None:
                loads.strike()
            super().__exit__(kind, error, trace)

    class TaskWriter(PartitionedWriter):
        def finish(self) -> list[DataFile]:
            files = super().finish()
            streams.strike()
            return files

    cloudpickle.register_pickle_by_value(worker_deaths)
    vars(loading).update(Cluster=TaskCluster)
    vars(streaming).update(PartitionedWriter=TaskWriter)


def main(settings: dict[str, Any]) -> None:
    results = []
    if settings["graves"]:
        arm(Path(settings["graves"]))
    with open_session(settings["master"], "ottla cluster tests", settings["conf"]) as spark:
        for name in ("replay", "sql", "stream", "table_run"):
            module = importlib.import_module(f"ottla.pipeline.cli.{name}")
            vars(module).update(open_session=lambda *_: nullcontext(spark))
        for command in settings["commands"]:
            by_spark = [] if command[0] == "push" else ["--master", settings["master"]]
            result = CliRunner().invoke(command_line.cli, ["pipeline", *command, "--json", *by_spark])
            if result.exit_code not in (0, 2):
                sys.exit(f"{command}: {result.output}{result.exception!r}")
            results.append(result.stderr if result.exit_code else json.loads(result.stdout))
    print(json.dumps(results))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
