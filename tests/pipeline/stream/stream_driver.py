"""A stream in a separate process that kills itself: `stream_driver.py SETTINGS`.

SETTINGS is JSON: servers, definition (a path), checkpoint, death (the step at which the process kills itself, unless it
did before: planned, files, decoded, reported, letters, committed), grave (a file that marks the death).
"""

from __future__ import annotations

import json
import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

from ottla.pipeline.spark.session import open_session, with_small_jvm
from ottla.pipeline.stream.definition import read_definition
from ottla.pipeline.stream.letters import DeadLetters
from ottla.pipeline.stream.run import StreamJob, run_stream
from ottla.pipeline.stream.table_results import TableResults
from ottla.pipeline.stream.topic_results import TopicResults


def die_at(step: str, death: str, grave: Path) -> None:
    if step == death and not grave.exists():
        grave.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def wrap(owner: Any, name: str, reach: Any, before: str, after: str) -> None:
    """Let a method reach a step before and after it."""
    method = getattr(owner, name)

    def wrapped(*arguments: Any) -> Any:
        reach(before)
        result = method(*arguments)
        reach(after)
        return result

    setattr(owner, name, wrapped)


def main(settings: dict[str, str]) -> None:
    reach = partial(die_at, death=settings["death"], grave=Path(settings["grave"]))
    for results in (TableResults, TopicResults):
        wrap(results, "prepare", reach, "planned", "files")
        wrap(results, "commit", reach, "letters", "committed")
    wrap(DeadLetters, "commit", reach, "decoded", "reported")
    definition = read_definition(Path(settings["definition"]))
    job = StreamJob(definition, settings["servers"], Path(settings["checkpoint"]), once=True)
    conf = with_small_jvm({"spark.sql.shuffle.partitions": "2"})
    run_stream(job, partial(open_session, "local[2]", "a stream that dies", conf))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
