"""kill -9 of Python workers while they send the batches of a query to a topic: each row is in the topic once.

The query reads files, with Spark's own file source.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

cloudpickle = pytest.importorskip("pyspark.cloudpickle", reason="needs the extra `pipeline`")

from ottla.client.librdkafka.transactional_producer import TransactionalProducer  # noqa: E402
from ottla.client.wire.model import CommittedOffset  # noqa: E402
from ottla.common.kafka.topic_partition import TopicPartition  # noqa: E402
from ottla.pipeline.sinks.open_table import open_table  # noqa: E402
from ottla.pipeline.sinks.topic import TopicTarget  # noqa: E402
from ottla.pipeline.stream.batches import BatchRunner  # noqa: E402
from ottla.pipeline.stream.letters import DeadLetters  # noqa: E402
from ottla.pipeline.stream.state import StreamState  # noqa: E402
from ottla.pipeline.stream.topic_results import TopicResults  # noqa: E402

from .. import deaths  # noqa: E402
from ..committed import read_appended, read_committed  # noqa: E402
from ..deaths import Deaths, graves, make_folder, steps  # noqa: E402

pytestmark = [pytest.mark.pipeline, pytest.mark.timeout(900)]

ROWS = 12
"""Rows of a batch."""
DEATHS = ("0 sent", "1 stored", "2 committed")


def doomed_target(death_log: Deaths) -> type[TopicTarget]:
    """Tasks record the steps of their transactions, "BATCH sent", "BATCH stored" and "BATCH committed", and die at
    some.

    Sent rows have reached the broker by then.
    """

    class Producer(TransactionalProducer):
        batch = -1

        def send_offsets(self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
            (progress,) = offsets.values()
            self.batch = progress.offset - 1
            self.flush()
            death_log.reach(f"{self.batch} sent")
            super().send_offsets(group_id, offsets)

        def commit(self) -> None:
            self.flush()
            death_log.reach(f"{self.batch} stored")
            super().commit()
            death_log.reach(f"{self.batch} committed")

    class Target(TopicTarget):
        def transactional_producer(self, transactional_id: str) -> TransactionalProducer:
            producer = super().transactional_producer(transactional_id)
            producer.__class__ = Producer
            return producer

    return Target


@pytest.fixture
def death_log(tmp_path: Path) -> Iterator[Path]:
    """Folder with the recorded steps of the tasks."""
    folder = tmp_path / "deaths"
    make_folder(folder)
    cloudpickle.register_pickle_by_value(deaths)
    yield folder
    cloudpickle.unregister_pickle_by_value(deaths)


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """A directory with a file for each batch."""
    folder = tmp_path / "lines"
    folder.mkdir()
    for batch in range(len(DEATHS)):
        path = folder / f"{batch}.txt"
        path.write_text("".join(f"{number}\n" for number in range(batch * ROWS, (batch + 1) * ROWS)))
        os.utime(path, (batch + 1, batch + 1))  # the order in which the query takes them
    return folder


def numbers(messages: Sequence[Any]) -> Counter[int]:
    return Counter(int(message.key()) for message in messages)


@pytest.mark.promise("P9")
def test_workers_that_die_while_they_send(
    spark: Any, bootstrap: str, make_topic: Callable[[], str], lines: Path, death_log: Path, tmp_path: Path
) -> None:
    """The next attempt aborts the rows of the dead one, or finds them committed, and the query continues."""
    topic, state = make_topic(), StreamState(tmp_path / "state", owner=7)
    doomed = doomed_target(Deaths(death_log, [{"step": step, "victim": "worker"} for step in DEATHS]))
    results = TopicResults(doomed(bootstrap, topic), f"dying-{topic}", "value", state)
    runner = BatchRunner(results, DeadLetters(state, open_table(tmp_path / "dead-letters"), "dying"))
    frame = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(lines))
    query = frame.writeStream.foreachBatch(runner).option("checkpointLocation", str(state.checkpoint))
    query.trigger(availableNow=True).start().awaitTermination()
    assert runner.rows == dict.fromkeys(range(len(DEATHS)), ROWS)
    assert graves(death_log) == list(DEATHS)
    committed_batches = [line.split()[1] for line in steps(death_log) if line.endswith(" committed")]
    assert committed_batches == ["0", "1", "2"]  # by one attempt each
    committed = numbers(read_committed(bootstrap, topic, ROWS * len(DEATHS)))
    assert committed == Counter(range(ROWS * len(DEATHS)))
    appended = numbers(read_appended(bootstrap, topic))
    assert appended - committed == Counter(range(2 * ROWS))  # aborted rows of the two that died before their commit
