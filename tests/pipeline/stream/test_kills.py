"""kill -9 of the driver between steps of a batch, then the same definition again: results hold each row once.

Each kill starts Spark again, so only the critical steps are tested here; `make exactly-once-topic`, which sets
OTTLA_TRIAL_KILLS, kills it at each.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from ..committed import read_committed
from .conftest import Send, Streams

pytestmark = pytest.mark.pipeline

DRIVER = Path(__file__).with_name("stream_driver.py")
STEPS = ("planned", "files", "letters", "committed")
"""Before a batch is computed; after its files, its dead letters and its rows are committed."""
KILLED_AT = STEPS if "OTTLA_TRIAL_KILLS" in os.environ else STEPS[-2:]
WAIT_S = 500
VIEWS = 30
"""Three batches: the one that is killed repeatedly, one on top of its state, and one that is not full."""

TEXT = """
    name = "{name}"
    [sources.views]
    topic = "{topic}"
    decode = "json"
    max_records = 12
    [query]
    sql = "select page, count(*) as views, avg(score) as score from views group by page"
    output = "update"
    [result]
    {result}
"""


class Course:
    """One definition, run in processes that are killed, and then to its end in the shared session."""

    def __init__(self, streams: Streams, text: str) -> None:
        directory = streams.directory
        self._settings = {
            "servers": streams.bootstrap,
            "definition": str(directory / "stream.toml"),
            "checkpoint": str(directory / "checkpoint"),
        }
        self._streams = streams
        self._text = text
        (directory / "stream.toml").write_text(text)

    def die_at(self, step: str) -> None:
        settings = {**self._settings, "death": step, "grave": str(self._streams.directory / f"{step}.grave")}
        done = subprocess.run(
            [sys.executable, str(DRIVER), json.dumps(settings)],
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
            start_new_session=True,
        )
        assert done.returncode == -signal.SIGKILL, done.stderr

    def run_through(self) -> None:
        for step in KILLED_AT:
            self.die_at(step)
        self._streams.run(self._text, checkpoint=Path(self._settings["checkpoint"]))


def views(count: int) -> list[bytes]:
    """Valid views, with scores that have an order-dependent sum; every tenth is invalid."""
    good = [json.dumps({"page": "abc"[number % 3], "score": 0.1 * number}).encode() for number in range(count)]
    return [b"bad" if number % 10 == 9 else one for number, one in enumerate(good)]


def wanted(sent: list[bytes]) -> dict[str, int]:
    return dict(Counter(json.loads(one)["page"] for one in sent if one != b"bad"))


@pytest.mark.promise("P9")
@pytest.mark.timeout(1500)
def test_a_table_through_kills(streams: Streams, send: Send, topic: str, tmp_path: Path) -> None:
    sent = views(VIEWS)
    send(sent)
    result = f'table = "{tmp_path}/table"\nkeys = ["page"]'
    Course(streams, TEXT.format(name="through", topic=topic, result=result)).run_through()
    assert {row["page"]: row["views"] for row in streams.rows()} == wanted(sent)
    letters = [(row["partition"], row["offset"]) for row in streams.rows("table/_dead_letters")]
    assert len(letters) == len(set(letters)) == sent.count(b"bad")


@pytest.mark.promise("P9")
@pytest.mark.timeout(1500)
def test_a_topic_through_kills(
    streams: Streams, send: Send, topic: str, make_topic: Callable[[], str], bootstrap: str
) -> None:
    """Each count of each page occurs at most once, and counts rise."""
    sent = views(VIEWS)
    send(sent)
    target = make_topic()
    result = f'topic = "{target}"\nkey = "page"'
    Course(streams, TEXT.format(name=f"through-{topic}", topic=topic, result=result)).run_through()
    counts: dict[str, list[int]] = {}
    for message in read_committed(bootstrap, target, 1):
        row = json.loads(message.value())
        counts.setdefault(row["page"], []).append(row["views"])
    assert {page: found[-1] for page, found in counts.items()} == wanted(sent)
    assert all(found == sorted(set(found)) for found in counts.values())
    letters = [(row["partition"], row["offset"]) for row in streams.rows("checkpoint/dead-letters")]
    assert len(letters) == len(set(letters)) == sent.count(b"bad")
