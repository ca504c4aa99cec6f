"""Each kind of query over a small topic equals the result of plain Python."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ..committed import read_committed
from .conftest import Send, Streams

pytestmark = pytest.mark.pipeline

START = datetime(2026, 3, 2, 10, 0, tzinfo=UTC)


def view(second: int, page: str, user: str = "u", **more: Any) -> dict[str, Any]:
    return {"at": (START + timedelta(seconds=second)).isoformat(), "page": page, "user": user, "second": second, **more}


def test_windows(streams: Streams, send: Send, topic: str) -> None:
    """Every window with an end before the watermark, with counts from plain Python."""
    views = [view(second, "abc"[second % 3]) for second in range(0, 1000, 7)]
    send(views)
    text = f"""
        name = "windows"
        [sources.views]
        topic = "{topic}"
        decode = "json"
        event_time = "at"
        watermark = "1 minute"
        [query]
        sql = "select window.start as start, page, count(*) as views from views group by window(at, '5 minutes'), page"
        [result]
        table = "DIR/table"
    """
    summary = streams.run(text)
    assert summary.rows_in == len(views)
    ended = (max(one["second"] for one in views) - 60) // 300 * 300
    counts = Counter((one["second"] // 300, one["page"]) for one in views if one["second"] < ended)
    found = {
        (int((row["start"].replace(tzinfo=UTC) - START).total_seconds()) // 300, row["page"]): row["views"]
        for row in streams.rows()
    }
    assert found == dict(counts)
    again = streams.run(text)
    assert (again.rows_in, again.rows_out) == (0, 0)


def test_sessions(streams: Streams, send: Send, topic: str) -> None:
    """A visit ends after a minute of silence; compared with plain Python on each user's times."""
    seconds = {"ann": [0, 20, 70, 300, 310], "bob": [5, 64, 200]}
    views = [view(second, "p", user) for user, times in seconds.items() for second in times]
    send([*sorted(views, key=lambda one: one["second"]), view(10_000, "p", "clock")])
    streams.run(
        f"""
        name = "sessions"
        [sources.views]
        topic = "{topic}"
        decode = "json"
        event_time = "at"
        watermark = "10 seconds"
        [query]
        sql = '''
        select user, session.start as start, count(*) as views
        from (select user, session_window(at, '1 minute') as session from views) group by user, session
        '''
        [result]
        table = "DIR/table"
        format = "parquet"
        """
    )
    wanted = set()
    for user, times in seconds.items():
        first, count = times[0], 0
        for before, second in zip([times[0], *times], times, strict=False):
            if second - before >= 60:
                wanted.add((user, first, count))
                first, count = second, 0
            count += 1
        wanted.add((user, first, count))
    found = {(row["user"], offset_s(row["start"]), row["views"]) for row in streams.rows()}
    assert found == wanted


def test_the_top_of_each_window(streams: Streams, send: Send, topic: str) -> None:
    """By a statement over the rows of a batch, which contains all rows of a window."""
    pages = [(second, "aaabbc"[second % 6]) for second in range(120)]
    send([*(view(second, page) for second, page in pages), view(10_000, "z")])
    streams.run(
        f"""
        name = "top"
        [sources.views]
        topic = "{topic}"
        decode = "json"
        event_time = "at"
        watermark = "10 seconds"
        [query]
        sql = "select window.start as start, page, count(*) as views from views group by window(at, '1 minute'), page"
        [result]
        table = "DIR/table"
        sql = '''
        select start, page, views from (
          select *, row_number() over (partition by start order by views desc) as place from result
        ) where place <= 2
        '''
        """
    )
    wanted = {
        (minute * 60, page, count)
        for minute in range(2)
        for page, count in Counter(page for second, page in pages if second // 60 == minute).most_common(2)
    }
    assert {(offset_s(row["start"]), row["page"], row["views"]) for row in streams.rows()} == wanted


def test_copies_within_the_watermark_are_left_out(streams: Streams, send: Send, topic: str) -> None:
    text = f"""
        name = "unique"
        [sources.orders]
        topic = "{topic}"
        decode = "json"
        event_time = "at"
        watermark = "1 minute"
        deduplicate = ["id"]
        [query]
        sql = "select id, second from orders"
        [result]
        table = "DIR/table"
    """
    send([view(second, "p", id=second % 5) for second in range(20)])
    streams.run(text)
    send([view(30 + second, "p", id=3 + second) for second in range(4)])
    streams.run(text)
    assert sorted(row["id"] for row in streams.rows()) == [0, 1, 2, 3, 4, 5, 6]


def test_two_topics_are_joined(streams: Streams, send: Send, topic: str, make_topic: Callable[[], str]) -> None:
    """Orders of a user within ten seconds after a click."""
    orders = make_topic()
    clicks_at = {"ann": [0, 50, 300], "bob": [10, 90]}
    orders_at = {"ann": [5, 61, 305], "bob": [8, 100], "eve": [1]}
    send([view(second, "p", user) for user, times in clicks_at.items() for second in times])
    send([view(second, "p", user) for user, times in orders_at.items() for second in times], to=orders)
    source = 'decode = "json"\nevent_time = "at"\nwatermark = "1 hour"'
    streams.run(
        f"""
        name = "join"
        [sources.clicks]
        topic = "{topic}"
        {source}
        [sources.orders]
        topic = "{orders}"
        {source}
        [query]
        sql = '''
        select clicks.user, clicks.second as clicked, orders.second as ordered from clicks join orders
        on clicks.user = orders.user and orders.at between clicks.at and clicks.at + interval 10 seconds
        '''
        [result]
        table = "DIR/table"
        """
    )
    wanted = {
        (user, click, order)
        for user, times in clicks_at.items()
        for click in times
        for order in orders_at[user]
        if click <= order <= click + 10
    }
    assert {(row["user"], row["clicked"], row["ordered"]) for row in streams.rows()} == wanted


@pytest.mark.parametrize("format_name", ["delta", "iceberg", "parquet"])
def test_changed_rows_replace_earlier_ones(streams: Streams, send: Send, topic: str, format_name: str) -> None:
    if format_name == "iceberg":
        pytest.importorskip("pyiceberg", reason="needs the extra `iceberg`")
    text = f"""
        name = "totals"
        [sources.views]
        topic = "{topic}"
        decode = "json"
        [query]
        sql = "select page, count(*) as views, sum(second) as seconds from views group by page"
        output = "update"
        [result]
        table = "DIR/table"
        format = "{format_name}"
        keys = ["page"]
    """
    counts: Counter[str | None] = Counter()
    for pages in ("abab", "bcc", "", "d"):
        views = [view(1, page) for page in pages] + [{"page": None, "second": 1}] * bool(pages)
        send(views)
        streams.run(text)
        counts.update(one["page"] for one in views)
        assert {row["page"]: row["views"] for row in streams.rows()} == dict(counts)


def test_complete_result_replaces_previous_one(streams: Streams, send: Send, topic: str) -> None:
    text = f"""
        name = "best"
        [sources.views]
        topic = "{topic}"
        decode = "json"
        [query]
        sql = "select page, count(*) as views from views group by page order by views desc, page limit 2"
        output = "complete"
        [result]
        table = "DIR/table"
    """
    counts: Counter[str] = Counter()
    for pages in ("aaabb", "cccc", "bbbb"):
        send([view(1, page) for page in pages])
        streams.run(text)
        counts.update(pages)
        assert {row["page"]: row["views"] for row in streams.rows()} == dict(counts.most_common(2))


def test_alerts_go_to_a_topic(
    streams: Streams, send: Send, topic: str, make_topic: Callable[[], str], bootstrap: str
) -> None:
    """Each alert once for read_committed consumers, also without new records."""
    alerts = make_topic()
    text = f"""
        name = "alerts-{topic}"
        [sources.logins]
        topic = "{topic}"
        decode = "json"
        event_time = "at"
        watermark = "10 seconds"
        [query]
        sql = '''
        select window.start as start, user, count(*) as tries, cast(null as string) as note from logins
        group by window(at, '1 minute'), user having count(*) > 3
        '''
        [result]
        topic = "{alerts}"
        key = "user"
    """
    send([view(second, "p", "eve") for second in range(5)] + [view(2, "p", "ann"), view(10_000, "p", "clock")])
    assert streams.run(text).rows_out == 1
    assert streams.run(text).rows_out == 0
    (message,) = read_committed(bootstrap, alerts, 1)
    assert message.key() == b"eve"
    assert json.loads(message.value()) == {"start": "2026-03-02T10:00:00.000Z", "user": "eve", "tries": 5, "note": None}


def test_a_function_in_place_of_sql(streams: Streams, send: Send, topic: str) -> None:
    """Functions that it calls in workers are sent with it."""
    (streams.directory / "words.py").write_text(
        "from pyspark.sql import functions as F\n"
        "def loud(word):\n    return word.upper() + '!'\n"
        "def run(spark, views):\n"
        "    return views['lines'].select(F.udf(loud)(F.col('value').cast('string')).alias('word'))\n"
    )
    send([b"one", b"two"])
    streams.run(
        f"""
        name = "words"
        [sources.lines]
        topic = "{topic}"
        [query]
        python = "words.py:run"
        [result]
        table = "DIR/table"
        """
    )
    assert {row["word"] for row in streams.rows()} == {"ONE!", "TWO!"}


def offset_s(time: datetime) -> int:
    return int((time.replace(tzinfo=UTC) - START).total_seconds())
