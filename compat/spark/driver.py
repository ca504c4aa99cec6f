"""A Spark session with Spark's Kafka connector that runs requests, lines of JSON on standard input.

python driver.py JAR,...      runs in the environment of compat/spark/requirements.txt, which has no Ottla.

A request is an object with the name of a function of `JOBS` as `job` and its arguments. The response is one line, with
the function's return value as `result`, or its exception as `error`. Bytes are encoded as text, one character a byte.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

RECORD_DDL = "topic string, partition int, key binary, value binary, headers array<struct<key: string, value: binary>>"
WAIT_S = 120

spark: SparkSession


def text(value: bytes | None) -> str | None:
    return None if value is None else bytes(value).decode("latin-1")


def raw(value: str | None) -> bytes | None:
    return None if value is None else value.encode("latin-1")


def rows(frame: DataFrame) -> list[list[Any]]:
    """Returns records as lists: topic, partition, offset, timestamp in ms, its type, key, value, headers or null."""
    headers = "headers" if "headers" in frame.columns else "null as headers"
    columns = ("topic", "partition", "offset", "unix_millis(timestamp)", "timestampType", "key", "value", headers)
    return [
        [*row[:5], text(row[5]), text(row[6]), row[7] and [[header.key, text(header.value)] for header in row[7]]]
        for row in frame.selectExpr(*columns).collect()
    ]


def read(options: dict[str, str]) -> dict[str, Any]:
    frame = spark.read.format("kafka").options(**options).load()
    return {"rows": rows(frame), "partitions": frame.rdd.getNumPartitions()}


def write(records: list[list[Any]], options: dict[str, str]) -> None:
    """Write records: topic, partition (null: the producer chooses), key, value, headers or null."""
    made = [
        (topic, partition, raw(key), raw(value), headers and [(name, raw(content)) for name, content in headers])
        for topic, partition, key, value, headers in records
    ]
    frame = spark.createDataFrame(made, RECORD_DDL)
    frame.write.format("kafka").options(**options).save()


def start(options: dict[str, str], checkpoint: str, sink: dict[str, str], trigger: dict[str, Any]) -> str:
    """Start a stream into Parquet files at `path` of `sink`, or into Kafka with other options. Returns its id."""
    frame = spark.readStream.format("kafka").options(**options).load()
    writer = frame.writeStream.option("checkpointLocation", checkpoint).trigger(**trigger).options(**sink)
    return writer.format("parquet" if "path" in sink else "kafka").start().id


def query(id: str) -> StreamingQuery:
    found = spark.streams.get(id)
    if found is None:
        raise LookupError(f"no query {id} runs")
    return found


def process(id: str) -> None:
    """Wait until a stream has processed all available records."""
    query(id).processAllAvailable()


def stop(id: str) -> None:
    query(id).stop()


def run(options: dict[str, str], checkpoint: str, sink: dict[str, str]) -> list[int]:
    """Run a stream with the trigger AvailableNow to its end; returns the row count of each nonempty batch."""
    running = query(start(options, checkpoint, sink, {"availableNow": True}))
    if not running.awaitTermination(WAIT_S):
        running.stop()
        raise TimeoutError(f"the stream did not end within {WAIT_S} s")
    return [progress.numInputRows for progress in running.recentProgress if progress.numInputRows]


def stored(path: str) -> list[list[Any]]:
    return rows(spark.read.parquet(path))


JOBS = {job.__name__: job for job in (read, write, start, process, stop, run, stored)}


def main() -> None:
    global spark
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # keeps Spark's output apart from responses
    builder = SparkSession.builder.master("local[2]").appName("ottla compat")
    conf = {
        "spark.jars": sys.argv[1],
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
    }
    for key, value in conf.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    print(json.dumps({"result": spark.version}), file=answers)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"result": JOBS[request.pop("job")](**request)}
        except Exception as error:  # returned to the test, which may expect it
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers)
    spark.stop()


if __name__ == "__main__":
    main()
