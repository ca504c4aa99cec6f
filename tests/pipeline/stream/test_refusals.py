"""Definitions and states that would duplicate or lose results are refused in one sentence, before any write."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from ottla.client.admin.cluster import Cluster
from ottla.common.errors import OperatorError, OttlaError
from ottla.pipeline.load.compact import compact
from ottla.pipeline.load.shape import Shape
from ottla.pipeline.operations.status import table_status
from ottla.pipeline.sinks.open_table import open_table
from ottla.pipeline.stream.definition import parse_definition
from ottla.pipeline.stream.state import held_state

from .conftest import Send, Streams

pytestmark = pytest.mark.pipeline

TEXT = """
    name = "words-{topic}"
    [sources.lines]
    topic = "{topic}"
    [query]
    sql = "select cast(value as string) as word from lines"
    [result]
    {result}
"""


def test_mismatched_state_and_results_are_refused(
    streams: Streams, send: Send, topic: str, make_topic: Callable[[], str], bootstrap: str, tmp_path: Path
) -> None:
    send([b"one", b"two"])
    text = TEXT.format(topic=topic, result='table = "DIR/table"')
    streams.run(text)
    assert sorted(row["word"] for row in streams.rows()) == ["one", "two"]

    with pytest.raises(OperatorError, match=r"differs in query\.sql: revert that"):
        streams.run(text.replace("as word", "as words"))
    streams.run(text.replace("[result]", '[result]\nformat = "delta"').replace("[query]", "max_records = 7\n[query]"))
    state = tmp_path / ".ottla-streams" / f"words-{topic}"
    definition = parse_definition(text.replace("DIR", str(tmp_path)), tmp_path)
    with held_state(state, definition), pytest.raises(OperatorError, match="runs in another process"):
        streams.run(text)
    with pytest.raises(OperatorError, match="has none after -1: continuing would duplicate them"):
        streams.run(text, checkpoint=tmp_path / "another")
    settled = (state / "stream.json").read_text()
    with Cluster(bootstrap) as cluster:
        cluster_id = cluster.describe().cluster_id
        (state / "stream.json").write_text(settled.replace(f'"cluster": "{cluster_id}"', '"cluster": "other"'))
        with pytest.raises(OperatorError, match=f"was started on cluster other, .* names cluster {cluster_id}: name a"):
            streams.run(text)
        (state / "stream.json").write_text(settled.replace(f'"cluster": "{cluster_id}"', '"of": "a release before"'))
        streams.run(text)
        found = table_status(open_table(tmp_path / "table"), cluster, "read_committed")
    assert [
        (one.pipeline_id, one.topic, one.partition, one.committed, one.lag, one.rows) for one in found.partitions
    ] == [
        (f"stream/words-{topic}", topic, 0, 1, 0, None),
        (f"stream/words-{topic}", topic, 1, 1, 0, None),
    ]
    shutil.rmtree(tmp_path / "table")
    with pytest.raises(OperatorError, match=r"the table .* does not exist, but"):
        streams.run(text)
    assert not (tmp_path / "table").exists()


def test_state_older_than_result_topic_is_refused(
    streams: Streams, send: Send, topic: str, make_topic: Callable[[], str], tmp_path: Path
) -> None:
    send([b"one", b"two"])
    text = TEXT.format(topic=topic, result=f'topic = "{make_topic()}"')
    assert streams.run(text).rows_out == 2
    with pytest.raises(OperatorError, match="has results of this stream up to batch 0"):
        streams.run(text, checkpoint=tmp_path / "another")


def test_rolled_back_results_are_refused(streams: Streams, send: Send, topic: str, tmp_path: Path) -> None:
    """From an older copy of the table, also if only batches without rows followed, and by RESTORE."""
    send([b"one", b"two"])
    text = TEXT.format(topic=topic, result='table = "DIR/table"')
    streams.run(text)
    shutil.copytree(tmp_path / "table", tmp_path / "older")
    send([b"three"])
    streams.run(text)
    newest = deltalake.DeltaTable(tmp_path / "table").version()
    shutil.move(tmp_path / "table", tmp_path / "newer")
    shutil.copytree(tmp_path / "older", tmp_path / "table")
    with pytest.raises(OperatorError, match="records its results up to batch 1, but it has them up to batch 0"):
        streams.run(text)
    shutil.rmtree(tmp_path / "table")
    shutil.move(tmp_path / "newer", tmp_path / "table")
    deltalake.DeltaTable(tmp_path / "table").restore(newest - 1)
    with pytest.raises(OperatorError, match=r"rolled it back below its load of version \d with 1 row"):
        streams.run(text)
    deltalake.DeltaTable(tmp_path / "table").restore(newest)
    streams.run(text)
    assert sorted(row["word"] for row in streams.rows()) == ["one", "three", "two"]


def test_recreated_result_topic_is_refused(
    streams: Streams, send: Send, topic: str, make_topic: Callable[[], str], bootstrap: str
) -> None:
    send([b"one", b"two"])
    result = make_topic()
    text = TEXT.format(topic=topic, result=f'topic = "{result}"')
    streams.run(text)
    with Cluster(bootstrap) as cluster:
        cluster.topics.delete([result])
        cluster.topics.create(result, 1)
    with pytest.raises(OperatorError, match=r"was deleted and created again, but .* records results in it"):
        streams.run(text)


def test_snapshot_table_refuses_stream_results(streams: Streams, topic: str) -> None:
    """It has one row a key, and a stream would add more."""
    columns = Shape().partition_columns
    schema = pa.schema([("word", pa.string()), (columns[0], pa.int32())])
    open_table(streams.directory / "table", partition_by=columns).ensure(schema)
    with pytest.raises(OperatorError, match="is a snapshot with one row a key"):
        streams.run(TEXT.format(topic=topic, result='table = "DIR/table"'))


def test_complete_output_requires_exclusive_table(streams: Streams, send: Send, topic: str) -> None:
    """In either order: rows of another stream, or of a load, would be removed by the next batch."""
    send([b"a", b"a"])
    whole = TEXT.format(topic=topic, result='table = "DIR/table"').replace(
        'as word from lines"', 'as word, count(*) as n from lines group by 1"\n    output = "complete"'
    )
    other = whole.replace('name = "', 'name = "other-').replace("count(*)", "cast(1 as bigint)")
    other = other.replace("group by 1", "").replace('output = "complete"', "")
    streams.run(other)
    with pytest.raises(OperatorError, match=rf"has rows of 'stream/other-words-{topic}', and output = \"complete\""):
        streams.run(whole)
    assert len(streams.rows()) == 2
    fresh = whole.replace("DIR/table", "DIR/whole"), other.replace("DIR/table", "DIR/whole").replace("other", "third")
    streams.run(fresh[0])
    streams.run(fresh[1])
    send([b"b"])
    with pytest.raises(OperatorError, match=rf"has rows of 'stream/third-words-{topic}'.* a table of its own"):
        streams.run(fresh[0])
    assert sorted((row["word"], row["n"]) for row in streams.rows("whole")) == [("a", 1), ("a", 1), ("a", 2)]


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ("select cast(value as string) as word from lines", "selec 1", r"\[query\]: Spark refused it: .*selec"),
        ("from lines", "from nowhere", r"\[query\]: Spark refused it: .*nowhere"),
        ("select cast(value as string) as word from lines", "select 1 as one", "is not a streaming query"),
        ("cast(value as string) as word", "count(*)", r"a column 'count\(1\)' with a duplicate"),
        ("cast(value as string) as word", "null as word", "null without a type; cast it"),
        ("[query]", 'event_time = "offset"\n[query]', "is of type bigint, not a time"),
        ("[query]", 'event_time = "nothing"\n[query]', r"\[sources.lines\]: Spark refused it: .*nothing"),
        ("[query]", 'watermark = "1 hour"\ndeduplicate = ["id"]\n[query]', "the view has no column 'id'"),
        ("[query]", 'decode = "json"\nschema = "none.json"\n[query]', "none.json does not exist"),
        ('[query]\n    sql = "select', '[query]\n    python = "none.py:f"\n# "', "the file does not exist"),
        ("[result]", '[result]\n    sql = "select x from result"', r"\[result\] sql: Spark refused the statement: .*x"),
        ("cast(value as string) as word", "count(*) as n", "Spark refused the query: .*append"),
    ],
)
def test_queries_refused_by_spark(streams: Streams, topic: str, before: str, after: str, sentence: str) -> None:
    text = TEXT.format(topic=topic, result='table = "DIR/table"')
    assert before in text
    with pytest.raises(OperatorError, match=sentence) as refused:
        streams.run(text.replace(before, after))
    assert "\n" not in str(refused.value)
    assert not (streams.directory / "table").exists()


def test_a_driver_without_the_python_of_the_workers(
    spark: Any, streams: Streams, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/nowhere/python")
    with pytest.raises(OperatorError, match=r"\[sources.lines\]: Spark can't plan it: Cannot run program [^\n]*$"):
        streams.run(TEXT.format(topic=topic, result='table = "DIR/table"'))


def test_a_pattern_that_matches_the_topic_of_the_results(streams: Streams, topic: str) -> None:
    """Each row would come back as a record, endlessly."""
    text = TEXT.format(topic=topic, result=f'topic = "{topic}"')
    named = f'topic = "{topic}"'
    assert named in text
    with pytest.raises(
        OperatorError, match=rf"matches '{topic}', the topic of \[result\]: the stream would feed itself"
    ):
        streams.run(text.replace(named, f'topic_pattern = "{topic[:-1]}."', 1))


def test_a_topic_that_is_not_there(streams: Streams, topic: str) -> None:
    with pytest.raises(OperatorError, match="topic 'nowhere' does not exist"):
        streams.run(TEXT.format(topic="nowhere", result='table = "DIR/table"'))
    with pytest.raises(OttlaError, match="'nowhere'"):
        streams.run(TEXT.format(topic=topic, result='topic = "nowhere"'))
    assert not (streams.directory / "table").exists()


def test_batch_commits_after_concurrent_compaction(streams: Streams, send: Send, topic: str, tmp_path: Path) -> None:
    """Replaced rows may be in another file than the one they were written to."""
    text = TEXT.format(topic=topic, result='table = "DIR/table"\nkeys = ["word"]').replace(
        'as word from lines"', 'as word, count(*) as n from lines group by 1"\n    output = "update"'
    )
    for values in ([b"a", b"b"], [b"c"], [b"a", b"d"]):
        send(values)
        streams.run(text)
        compact(open_table(tmp_path / "table"))
    assert {row["word"]: row["n"] for row in streams.rows()} == {"a": 2, "b": 1, "c": 1, "d": 1}
