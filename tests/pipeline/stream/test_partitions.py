"""Tables of streams are partitioned like those of loads: by columns of the result, and by the day of its
`timestamp`."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from ottla.common.errors import OttlaError
from ottla.pipeline.sinks.formats import TABLE_FORMATS
from ottla.pipeline.sinks.open_table import open_table

from ..topics import produce
from .conftest import Send, Streams

pytestmark = pytest.mark.pipeline

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
DAY_MS = 86_400_000
WORDS = """
    name = "words"
    [sources.lines]
    topic = "{topic}"
    [query]
    sql = "select {columns} from lines"
    [result]
    table = "DIR/table"
    partition_by = {partition_by}
"""


def directories(table: Path) -> set[str]:
    """Directories of the data files, relative to the table."""
    return {str(Path(path).parent.relative_to(table)) for path in open_table(table).files()}


def test_the_day_of_a_timestamp(streams: Streams, topic: str, bootstrap: str, tmp_path: Path) -> None:
    """The initial partition columns of a table stay, regardless of later definitions."""
    noon_ms = int(NOON.timestamp() * 1000)
    words = ("one", "two", "three")
    produce(
        bootstrap,
        topic,
        ({"value": word, "timestamp": noon_ms + day * DAY_MS, "partition": 0} for day, word in enumerate(words)),
    )
    text = WORDS.format(topic=topic, columns="timestamp, cast(value as string) as word", partition_by='["date"]')
    streams.run(text)
    assert directories(tmp_path / "table") == {f"date=2026-03-0{day}" for day in (2, 3, 4)}
    produce(bootstrap, topic, [{"value": "four", "timestamp": noon_ms, "partition": 0}])
    streams.run(text.replace('["date"]', '["word"]'))
    assert {row["word"]: row["date"] for row in streams.rows()} == {
        "one": date(2026, 3, 2),
        "two": date(2026, 3, 3),
        "three": date(2026, 3, 4),
        "four": date(2026, 3, 2),
    }


@pytest.mark.parametrize("format_name", TABLE_FORMATS)
def test_rows_are_replaced_within_their_partitions(
    streams: Streams, send: Send, topic: str, tmp_path: Path, format_name: str
) -> None:
    """Null has a partition of its own, and a column `date` of the result is kept."""
    if format_name == "iceberg":
        pytest.importorskip("pyiceberg", reason="needs the extra `iceberg`")
    text = f"""
        name = "totals"
        [sources.views]
        topic = "{topic}"
        decode = "json"
        [query]
        sql = "select page, date'2026-03-02' as date, count(*) as views from views group by page"
        output = "update"
        [result]
        table = "DIR/table"
        format = "{format_name}"
        partition_by = ["page", "date"]
        keys = ["page"]
    """
    counts: Counter[str | None] = Counter()
    for pages in (["a", "b", "a", None], ["b", "c"]):
        send([{"page": page, "second": 1} for page in pages])
        streams.run(text)
        counts.update(pages)
        assert {(row["page"], row["date"]): row["views"] for row in streams.rows()} == {
            (page, date(2026, 3, 2)): count for page, count in counts.items()
        }
    assert open_table(tmp_path / "table").layout().partition_columns == ("page", "date")


@pytest.mark.parametrize(
    ("columns", "partition_by", "sentence"),
    [
        (
            "offset",
            '["word"]',
            "partition_by: a table can't be partitioned by 'word', which is not a column of its rows",
        ),
        (
            "offset",
            '["date"]',
            "partition_by: a table can't be partitioned by 'date', which is not a column of its rows",
        ),
        (
            "offset, 'noon' as timestamp",
            '["date"]',
            "can't be partitioned by 'date', which is not a column of its rows",
        ),
        ("offset, 0.5 as half", '["half"]', "partition_by: a table can't be partitioned by 'half' of type decimal"),
        ("repeat(value, 80) as word", '["word"]', "the columns word contain a text that can't be a directory name"),
    ],
)
def test_unusable_partition_columns_are_refused(
    streams: Streams, send: Send, topic: str, tmp_path: Path, columns: str, partition_by: str, sentence: str
) -> None:
    send([b"one", b"a/b"])
    with pytest.raises(OttlaError) as refused:
        streams.run(WORDS.format(topic=topic, columns=columns, partition_by=partition_by))
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)
    table = open_table(tmp_path / "table")
    files = table.files() if table.exists() else []
    assert list(files) == []
