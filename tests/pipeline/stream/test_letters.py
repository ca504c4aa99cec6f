"""Records that can't be decoded become dead letters once, regardless of failures of their batch; the stream
continues."""

from __future__ import annotations

import pytest

from ottla.common.errors import OttlaError
from ottla.pipeline.sinks.delta import DeltaTarget
from ottla.pipeline.sinks.table import CommitResult, TableCommit

from .conftest import Send, Streams

pytestmark = pytest.mark.pipeline

TEXT = """
    name = "letters-{topic}"
    [sources.views]
    topic = "{topic}"
    decode = "json"
    [query]
    sql = "select page, count(*) as views from views group by page"
    output = "{output}"
    [result]
    {result}
"""


class Broken(DeltaTarget):
    """A table with failing commits, or a failure after the commit."""

    failures = 1
    after = False

    def commit(self, commit: TableCommit) -> CommitResult:
        done = super().commit(commit) if self.after else None
        if self.failures:
            self.failures -= 1
            raise OttlaError("the disk is gone")
        return done or super().commit(commit)

    def dead_letters(self) -> DeltaTarget:
        return DeltaTarget(self.location).dead_letters()


@pytest.mark.parametrize("after", [False, True], ids=["before the commit", "after the commit"])
def test_bad_records_are_dead_letters_once(streams: Streams, send: Send, topic: str, after: bool) -> None:
    """Also if the batch fails and is run again."""
    send([{"page": "a"}, b"no JSON", {"page": "b"}, b"[", b'{"page"'])
    text = TEXT.format(topic=topic, output="complete", result='table = "DIR/table"')
    broken = Broken(streams.directory / "table")
    broken.after = after
    with pytest.raises(OttlaError, match="the disk is gone"):
        streams.run(text, open_table=lambda: broken)
    summary = streams.run(text)
    letters = streams.rows("table/_dead_letters")
    assert sorted(row["value"] for row in letters) == [b"[", b"no JSON", b'{"page"']
    assert all(row["topic"] == topic and row["reason"] for row in letters)
    assert {row["page"]: row["views"] for row in streams.rows()} == {"a": 1, "b": 1}
    assert summary.dead_letter_table == str(streams.directory / "table" / "_dead_letters")
    send([b"late", {"page": "a"}])
    assert streams.run(text).dead_letters == 1
    assert {row["page"]: row["views"] for row in streams.rows()} == {"a": 2, "b": 1}


def test_dead_letters_of_stream_into_topic(streams: Streams, send: Send, topic: str, make_topic) -> None:
    send([{"page": "a"}, b"no JSON"])
    summary = streams.run(TEXT.format(topic=topic, output="update", result=f'topic = "{make_topic()}"'))
    assert (summary.rows_out, summary.dead_letters) == (1, 1)
    assert [row["value"] for row in streams.rows("checkpoint/dead-letters")] == [b"no JSON"]


def test_change_events_are_rows_with_their_kind(streams: Streams, send: Send, topic: str) -> None:
    new, gone = {"page": "a"}, {"page": "b"}
    send([{"op": "c", "after": new}, {"op": "u", "after": new}, {"op": "d", "before": gone}, new])
    text = TEXT.format(topic=topic, output="complete", result='table = "DIR/table"')
    text = text.replace('decode = "json"', 'decode = "json"\nenvelope = "debezium"').replace(
        "select page,", "select __op,"
    )
    summary = streams.run(text.replace("by page", "by __op"))
    assert {row["__op"]: row["views"] for row in streams.rows()} == {"c": 1, "u": 1, "d": 1}
    [letter] = streams.rows("table/_dead_letters")
    assert "--envelope debezium" in letter["reason"]
    assert summary.dead_letters == 1
