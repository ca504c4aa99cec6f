"""A streaming query into a topic, exactly once, in a process of its own that is killed: `sink_driver.py SETTINGS`.

SETTINGS is JSON: servers, source (a directory of text files, three a trigger, one a task), target, checkpoint, steps (a
file that gets a line for each step of each task), deaths (a list of epoch, step and victim: who is killed when a task
first comes there), graves (a directory with a file for each of them that happened). It ends when all files are written.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ottla.client.transactional_producer import TransactionalProducer
from ottla.pipeline.datasource.sink import TopicStreamWriter, stream_writer
from ottla.pipeline.session import open_session


class Deadly:
    """Wraps the steps of a task's producer: tells each, and kills where it is to."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        self._driver = os.getpid()

    def take_effect(self) -> None:
        """In this process, a worker; it may be one that had tasks before."""
        if TransactionalProducer.commit.__name__ == "deadly_commit":
            return
        send_offsets, commit = TransactionalProducer.send_offsets, TransactionalProducer.commit

        def deadly_send_offsets(producer: TransactionalProducer, *arguments: Any) -> None:
            self.reach("sent")
            send_offsets(producer, *arguments)
            self.reach("offsets")

        def deadly_commit(producer: TransactionalProducer) -> None:
            commit(producer)
            self.reach("committed")

        TransactionalProducer.send_offsets = deadly_send_offsets  # type: ignore[assignment,method-assign]
        TransactionalProducer.commit = deadly_commit  # type: ignore[assignment,method-assign]

    def reach(self, step: str) -> None:
        epoch = int(TaskContext.get().getLocalProperty("streaming.sql.batchId"))
        with Path(self._settings["steps"]).open("a") as steps:
            steps.write(f"{os.getpid()} {epoch} {step}\n")
        for each in self._settings["deaths"]:
            if each["epoch"] == epoch and each["step"] == step:
                self._kill(each["victim"], Path(self._settings["graves"], f"{epoch} {step}"))

    def _kill(self, victim: str, grave: Path) -> None:
        with suppress(FileExistsError):
            grave.touch(exist_ok=False)
            os.kill(self._driver if victim == "driver" else os.getpid(), signal.SIGKILL)
            if victim == "driver":
                signal.pause()  # the worker of a dead driver goes no further than it was


class DeadlyWriter(TopicStreamWriter):
    """The writer under test with its steps wrapped."""

    deadly: Deadly

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        self.deadly.take_effect()
        return super().write(iterator)


def main(settings: dict[str, Any]) -> None:
    deadly = Deadly(settings)

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
            spark.readStream.format("text")
            .option("maxFilesPerTrigger", 3)
            .load(settings["source"])
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
