"""A stream from one topic into another by Spark, in one of two ways; runs by the Python of its way.

python into_topic.py '{"way": ..., "bootstrap": ..., "source": ..., "target": ..., "trigger_ms": ..., ...}'

ottla       source and sink `ottla`, exactly once
connector   source and sink of Spark's own Kafka connector, at least once; its jars `conf` names

Further: `checkpoint`, a directory; `master`; `conf`. It prints `ready` when the query waits for records. When its input
ends it prints the milliseconds that each of the latest batches took, in JSON.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any

FORMATS = {"ottla": "ottla", "connector": "kafka"}
SINK_OPTIONS = {"ottla": {"delivery.guarantee": "exactly-once"}, "connector": {}}


def start(spark: Any, job: dict[str, Any]) -> Any:
    """Start the query, which passes on values and partitions unchanged."""
    name, servers = FORMATS[job["way"]], ("kafka.bootstrap.servers", job["bootstrap"])
    reader = spark.readStream.format(name).option(*servers).option("subscribe", job["source"])
    frame = reader.option("startingOffsets", "earliest").load().select("value", "partition")
    writer = frame.writeStream.format(name).option(*servers).options(**SINK_OPTIONS[job["way"]])
    writer = writer.option("topic", job["target"]).option("checkpointLocation", job["checkpoint"])
    return writer.trigger(processingTime=f"{job['trigger_ms']} milliseconds").start()


def main() -> None:
    from pyspark.sql import SparkSession

    job = json.loads(sys.argv[1])
    builder = SparkSession.builder.master(job["master"]).appName("ottla bench")
    for name, value in job["conf"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    if job["way"] == "ottla":
        import_module("ottla.spark").register(spark)
    query = start(spark, job)
    print("ready", flush=True)
    sys.stdin.read()
    query.stop()
    if query.exception() is not None:
        raise query.exception()
    took = [one["durationMs"]["triggerExecution"] for one in query.recentProgress if one["numInputRows"]]
    print(json.dumps(took), flush=True)


if __name__ == "__main__":
    main()
