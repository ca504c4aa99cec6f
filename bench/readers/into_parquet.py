"""One topic into Parquet files, in one of four ways; runs by the Python of its way.

python into_parquet.py '{"way": ..., "bootstrap": ..., "topic": ..., "target": ..., "master": ..., "conf": {...}}'

load        `ottla pipeline load` on Spark, as the command does it
local       `ottla pipeline load --engine local`, with one worker process per core
ottla       Spark's reader by the source `ottla`
connector   Spark's reader by its own Kafka connector, with the jars in `conf`

It prints `ready` when the session is up and `done` when all is written. Until its input ends it stays, and so does the
session, so that the usage of its workers can be read: workers of an ended session are no longer its child processes.
"""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack, nullcontext
from importlib import import_module
from typing import Any

FORMATS = {"ottla": "ottla", "connector": "kafka"}


def say(word: str) -> None:
    print(word, flush=True)


def by_reader(job: dict[str, Any]) -> None:
    """Run a batch query from the first offset to the last."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(job["master"]).appName("ottla bench")
    for name, value in job["conf"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    if job["way"] == "ottla":
        import_module("ottla.spark").register(spark)
    say("ready")
    reader = spark.read.format(FORMATS[job["way"]]).option("kafka.bootstrap.servers", job["bootstrap"])
    reader.option("subscribe", job["topic"]).option("startingOffsets", "earliest").load().write.parquet(job["target"])


def by_load(job: dict[str, Any], until: ExitStack) -> None:
    """Load into a new table; the session ends with `until`."""
    from pathlib import Path

    from ottla.pipeline.load.driver import Observer, load
    from ottla.pipeline.local.pool import open_local
    from ottla.pipeline.model.plan import PlanSettings
    from ottla.pipeline.sinks.delta import DeltaTarget
    from ottla.pipeline.spark.session import LOCAL_ATTEMPTS, open_session, parallelism, with_small_jvm

    class Progress(Observer):
        def landing(self, *_: object) -> None:
            say("ready")

    def session() -> Any:
        if job["way"] == "local":
            return nullcontext(until.enter_context(open_local(parallelism(job["master"]), LOCAL_ATTEMPTS)))
        return nullcontext(until.enter_context(open_session(job["master"], "ottla bench", with_small_jvm(job["conf"]))))

    settings = PlanSettings("bench", parallelism=parallelism(job["master"]))
    load([job["topic"]], DeltaTarget(Path(job["target"])), job["bootstrap"], session, settings, Progress())


def main() -> None:
    job = json.loads(sys.argv[1])
    with ExitStack() as until:
        by_load(job, until) if job["way"] in ("load", "local") else by_reader(job)
        say("done")
        sys.stdin.read()


if __name__ == "__main__":
    main()
