"""Results in a topic: each row is a JSON record, in transactions that contain the number of the batch.

The rows of a batch are written to files in the stream's directory before the first of them is sent. So a batch that is
run again sends the same rows as before, even if the query computed other rows or another order (sums of
floating-point numbers, rows out of a shuffle); each file is one task of `sinks/epochs.py`, which sends it once.

Before the first batch the stream claims the topic for its state, by an offset of a group of its own, in a
transaction: of two states of the same name only one gets it, even before any of them has sent a record.

**Invariants:** each row of a batch is in the topic once for consumers of committed records, regardless of crashes, and
from one state only. The rows of one file are in one transaction; a batch of several becomes visible file by file.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F

from ottla.client.admin.cluster import Cluster
from ottla.client.librdkafka.transactional_producer import ProducerFenced
from ottla.client.wire.model import CommittedOffset
from ottla.common.errors import OperatorError
from ottla.common.kafka.ids import uuid_to_string
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.pipeline.model.failure import os_reason
from ottla.pipeline.model.rollback import LoadRefusedError
from ottla.pipeline.sinks.epochs import ABORT_S, EpochTask, write_epoch
from ottla.pipeline.sinks.table import DataFile, FileLayout, files_from_json, files_to_json
from ottla.pipeline.sinks.topic import LIBRARYS_END, TopicTarget
from ottla.pipeline.sinks.writer import new_load_id
from ottla.pipeline.stores.durable import write_durably
from ottla.pipeline.stream.rows import arrow_schema, write_rows
from ottla.pipeline.stream.state import KeptResults, StreamState

RECORDS = pa.schema([("key", pa.string()), ("value", pa.string())])
_TASK_GROUP = "ottla-sink-{}-"
_OWNER_GROUP = "ottla-sink-{}-owner"


class TopicResults:
    """Results of the stream `name`; `key` is the column of the records' keys, empty for none."""

    def __init__(self, target: TopicTarget, name: str, key: str, state: StreamState) -> None:
        self._target = target
        self._name = name
        self._stream = f"stream-{name}"
        self._key = key
        self._state = state
        self._files: list[DataFile] = []

    @property
    def location(self) -> str:
        return f"topic {self._target.topic}"

    @property
    def directory(self) -> str:
        return str(self._state.epochs)

    def require_fit(self, planned: int, ended: int) -> None:
        target = self._target
        with Cluster(target.bootstrap_servers, client_id=target.client_id, security=target.security) as cluster:
            topic_id = uuid_to_string(cluster.topics.get(str(self._target.topic)).topic_id)
            of_task = re.compile(re.escape(_TASK_GROUP.format(self._stream)) + r"\d+")
            groups = [one.group_id for one in cluster.groups.find() if of_task.fullmatch(one.group_id)]
            sent = [one.offset for group in groups for one in cluster.groups.offsets(group).values()]
            owner = self._owner(cluster.groups.offsets(self._owner_group))
        newest = max(sent, default=0) - 1
        if newest > planned:
            raise LoadRefusedError(
                f"the {self.location} has results of this stream up to batch {newest}, but {self._state.path} has "
                f"none after {planned}: continuing would duplicate them. Restore the newer state, name it with "
                "--checkpoint, or start a new stream with another name"
            )
        self._state.require_own(owner, self.location, self._name)
        self._require_same_topic(topic_id, planned)
        if owner is None:
            self._take()

    def _require_same_topic(self, topic_id: str, planned: int) -> None:
        """Raise OperatorError if the topic was recreated, and so has no results of earlier batches."""
        kept = self._state.kept_results().topic_id
        if planned >= 0 and kept not in ("", topic_id):
            raise LoadRefusedError(
                f"the {self.location} was deleted and created again, but {self._state.path} records results in it: "
                "continuing would lose them. Start a new stream with another name, or remove that directory and the "
                f"groups {_TASK_GROUP.format(self._stream)}* to fill the topic from the start"
            )
        if kept != topic_id:
            self._state.keep_results(KeptResults(topic_id=topic_id))

    def _take(self) -> None:
        """Claim the topic for this state, unless another state does so concurrently. Raises OperatorError,
        KafkaError."""
        # aborts the open transaction of a killed producer
        producer = self._target.transactional_producer(self._owner_group)
        try:
            owner = self._owner(self._target.committed_offsets(self._owner_group))
            self._state.require_own(owner, self.location, self._name)
            if owner is None:
                progress = {self._owner_position: CommittedOffset(0, -1, str(self._state.owner))}
                producer.send_offsets(self._owner_group, progress)
                producer.commit()
        except ProducerFenced as error:
            raise OperatorError(
                f"another process is starting the stream {self._name!r} with another state than {self._state.path}: "
                f"run only one of them; run this command again to see which one has the {self.location}"
            ) from error
        finally:
            producer.end(ABORT_S)

    def _owner(self, committed: Mapping[TopicPartition, CommittedOffset]) -> int | None:
        """The owner of the topic, from the offsets of its group."""
        found = committed.get(self._owner_position)
        return None if found is None else int(found.metadata.rstrip(LIBRARYS_END))

    @property
    def _owner_group(self) -> str:
        return _OWNER_GROUP.format(self._stream)

    @property
    def _owner_position(self) -> TopicPartition:
        return (str(self._target.topic), 0)

    def open(self, frame: Any) -> None:
        names = arrow_schema(frame).names
        if self._key and self._key not in names:
            raise OperatorError(f"[result] key: the result has no column {self._key!r}; it has {', '.join(names)}")

    def holds(self, batch: int) -> bool:
        return False  # each task of a batch checks its own progress

    def prepare(self, frame: Any, batch: int) -> None:
        settled = self._settled(batch)
        if settled is not None:
            run_whole(frame)  # updates Spark's state of the query
            self._files = settled
            return
        directory = self._state.epochs / str(batch)
        shutil.rmtree(directory, ignore_errors=True)  # of an incomplete attempt
        directory.mkdir(parents=True)
        key = F.col(f"`{self._key}`").cast("string") if self._key else F.lit(None).cast("string")
        value = F.to_json(F.struct("*"), {"ignoreNullFields": "false"})
        rows = frame.select(key.alias("key"), value.alias("value"))
        self._files = write_rows(rows, FileLayout(str(directory)), RECORDS, "epoch", new_load_id())
        write_durably(self._state.epochs / f"{batch}.json", files_to_json(self._files))
        self._forget(batch)

    def commit(self, spark: Any, batch: int) -> int:
        directory, target, stream = self._state.epochs / str(batch), self._target, self._stream
        paths = [str(directory / file.path) for file in self._files]

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for numbers in batches:
                for number in numbers.column(0).to_pylist():
                    write_epoch(target, EpochTask(stream, batch, number), _rows(paths[number]))
            yield pa.RecordBatch.from_arrays([pa.nulls(0, pa.int64())], ["done"])

        if paths:
            spark.range(0, len(paths), 1, len(paths)).mapInArrow(run, "done bigint").collect()
        return sum(file.rows for file in self._files)

    def discard(self) -> None:
        """Does nothing: the written files are sent when the batch runs again."""

    def _settled(self, batch: int) -> list[DataFile] | None:
        """The files of a batch that an earlier run wrote completely."""
        try:
            return files_from_json((self._state.epochs / f"{batch}.json").read_text())
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise OperatorError(
                f"the written rows in {self._state.epochs} can't be read: {os_reason(error)}"
            ) from error

    def _forget(self, batch: int) -> None:
        """Remove the files of earlier batches: Spark has ended them when a new one is planned."""
        for path in self._state.epochs.iterdir():
            number = path.name.removesuffix(".json")
            if number.isdecimal() and int(number) < batch:
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    with suppress(OSError):
                        path.unlink()


def run_whole(frame: Any) -> None:
    """Run all tasks of a DataFrame without using its rows: they update Spark's state of the query."""
    frame.write.format("noop").mode("overwrite").save()


def _rows(path: str) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(path) as file:
        yield from file.iter_batches()
