"""A streaming query into a topic, exactly once, in a process of its own that is killed: `sink_driver.py SETTINGS`.

SETTINGS is JSON: servers, files (a directory of text files, three a trigger, one a task) or topic (read by the source
`ottla`, committed records only), target, checkpoint, folder and deaths as `deaths.Deaths` takes them. The steps are
those of each task, "EPOCH sent", "EPOCH offsets" and "EPOCH committed"; a task with a pooled producer stores the
offsets before it sends. The query ends when all available rows are written.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext, cloudpickle
from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.pipeline import deaths
from tests.pipeline.deaths import Deaths

import ottla.spark
from ottla.client.librdkafka.transactional_producer import TransactionalProducer
from ottla.pipeline.datasource.sink import TopicStreamWriter, stream_writer
from ottla.pipeline.spark.session import open_session

TRIGGER_OFFSETS = 1_000


class Deadly:
    """Wraps the steps of a task's producer: records each, and kills the process at a planned one."""

    def __init__(self, deaths: Deaths) -> None:
        self._deaths = deaths
        self._sends_later = False

    def take_effect(self) -> None:
        """Wrap the producer in this worker process, which may have had tasks before."""
        if TransactionalProducer.commit.__name__ == "deadly_commit":
            return
        send_offsets, commit = TransactionalProducer.send_offsets, TransactionalProducer.commit

        def deadly_send_offsets(producer: TransactionalProducer, *arguments: Any) -> None:
            self._sends_later = producer.open_count == 0
            if not self._sends_later:
                self._reach("sent")
            send_offsets(producer, *arguments)
            self._reach("offsets")

        def deadly_commit(producer: TransactionalProducer) -> None:
            if self._sends_later:
                self._reach("sent")
            commit(producer)
            self._reach("committed")

        TransactionalProducer.send_offsets = deadly_send_offsets  # type: ignore[assignment,method-assign]
        TransactionalProducer.commit = deadly_commit  # type: ignore[assignment,method-assign]

    def _reach(self, step: str) -> None:
        epoch = TaskContext.get().getLocalProperty("streaming.sql.batchId")
        self._deaths.reach(f"{epoch} {step}")


class DeadlyWriter(TopicStreamWriter):
    """The writer under test with its steps wrapped."""

    deadly: Deadly

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        self.deadly.take_effect()
        return super().write(iterator)


def read(spark: Any, settings: dict[str, Any]) -> Any:
    """The input of the stream: text of files, or keys and values of a topic."""
    if "files" in settings:
        return spark.readStream.format("text").option("maxFilesPerTrigger", 3).load(settings["files"])
    ottla.spark.register(spark)
    return (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", settings["servers"])
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", settings["topic"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", TRIGGER_OFFSETS)
        .option("minPartitions", 3)
        .load()
        .select("key", "value")
    )


def main(settings: dict[str, Any]) -> None:
    deadly = Deadly(Deaths(Path(settings["folder"]), settings["deaths"]))
    cloudpickle.register_pickle_by_value(deaths)

    class Sink(DataSource):
        @classmethod
        def name(cls) -> str:
            return "deadly"

        def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
            writer = stream_writer(self.options, schema, overwrite=overwrite)
            writer.__class__ = DeadlyWriter
            writer.deadly = deadly
            return writer

    with open_session("local[2]", "sink driver", {"spark.sql.files.openCostInBytes": str(128 << 20)}) as spark:
        spark.dataSource.register(Sink)
        query = (
            read(spark, settings)
            .writeStream.format("deadly")
            .option("kafka.bootstrap.servers", settings["servers"])
            .option("kafka.linger.ms", 1)
            .option("topic", settings["target"])
            .option("delivery.guarantee", "exactly-once")
            .option("checkpointLocation", settings["checkpoint"])
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
