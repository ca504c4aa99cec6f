"""A stream that is started a second time, in a directory of its own: one of both is refused, at any progress of the
other.

By batch numbers alone each would take the batches of the other for its own, although they have other offsets.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.client.librdkafka.transactional_producer import TransactionalProducer
from ottla.client.wire.model import CommittedOffset
from ottla.common.errors import OperatorError
from ottla.pipeline.transform.schema_file import EXAMPLE

from ..committed import read_committed
from .conftest import Send, Streams

pytestmark = pytest.mark.pipeline

TEXT = """
    name = "words-{topic}"
    [sources.lines]
    topic = "{topic}"
    {source}
    [query]
    sql = "select {column} from lines {where}"
    [result]
    {result}
"""
REFUSED = r"has results of a stream 'words-\S+' with another state than {state}, and both would mix: name the directory"


def definition(topic: str, result: str, *, where: str = "", source: str = "", column: str = "") -> str:
    column = column or "cast(value as string) as word"
    return TEXT.format(topic=topic, result=result, where=where, source=source, column=column)


def test_concurrent_starts_one_owns_table(streams: Streams, send: Send, topic: str, tmp_path: Path) -> None:
    """The second one reads more in its first batch, which the first one's batch would replace."""
    text = definition(topic, 'table = "DIR/table"')
    send([b"one", b"two"])

    def first() -> None:
        streams.run(text)
        send([b"three"])

    second = tmp_path / "second"
    with pytest.raises(OperatorError, match=REFUSED.format(state=second)) as refused:
        streams.run(text, first, checkpoint=second)
    assert "\n" not in str(refused.value)
    assert sorted(row["word"] for row in streams.rows()) == ["one", "two"]
    streams.run(text)
    assert sorted(row["word"] for row in streams.rows()) == ["one", "three", "two"]


def test_concurrent_starts_one_owns_dead_letters(streams: Streams, send: Send, topic: str, tmp_path: Path) -> None:
    """A batch with bad records only commits no results, which would identify its state."""
    text = definition(topic, 'table = "DIR/table"', source='decode = "json"\n    schema = "fields.json"', column="word")
    (tmp_path / "fields.json").write_text(EXAMPLE.replace('"id"', '"word"'))
    send([b"bad", b"worse"])

    with pytest.raises(OperatorError, match=REFUSED.format(state=tmp_path / "second")):
        streams.run(text, lambda: streams.run(text), checkpoint=tmp_path / "second")
    assert len(streams.rows("table/_dead_letters")) == 2


def test_concurrent_starts_one_owns_topic(
    streams: Streams, send: Send, topic: str, make_topic: Callable[[], str], bootstrap: str, tmp_path: Path
) -> None:
    target = make_topic()
    text = definition(topic, f'topic = "{target}"')
    send([b"one", b"two"])

    def late() -> None:
        with pytest.raises(OperatorError, match=REFUSED.format(state=tmp_path / "late")):
            streams.run(text, checkpoint=tmp_path / "late")

    assert streams.run(text, late).rows_out == 2
    assert len(read_committed(bootstrap, target, 1)) == 2


def test_topic_is_owned_before_first_record(
    streams: Streams, send: Send, topic: str, make_topic: Callable[[], str], tmp_path: Path
) -> None:
    """Such as alerts, started in another working directory: no results show the owner yet."""
    text = definition(topic, f'topic = "{make_topic()}"', where="where offset > 100")
    send([b"one"])
    assert streams.run(text).rows_out == 0
    with pytest.raises(OperatorError, match=REFUSED.format(state=tmp_path / "second")):
        streams.run(text, checkpoint=tmp_path / "second")
    assert streams.run(text).rows_out == 0


def test_start_after_kill_during_topic_claim(
    streams: Streams, send: Send, topic: str, make_topic: Callable[[], str], bootstrap: str
) -> None:
    """Its transaction is open for minutes; the next one aborts it."""
    target, group = make_topic(), f"ottla-sink-stream-words-{topic}-owner"
    send([b"one"])
    killed = TransactionalProducer(bootstrap, group)
    killed.send_offsets(group, {(target, 0): CommittedOffset(0, -1, "7")})
    assert streams.run(definition(topic, f'topic = "{target}"')).rows_out == 1
