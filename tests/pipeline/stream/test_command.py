"""`ottla pipeline stream` as a user runs it: lines of batches, and the ends of a run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ottla.app.main import cli
from ottla.pipeline.cli import pipeline
from ottla.pipeline.cli.stream import batch_text
from ottla.pipeline.stream.progress import BatchProgress

from ..test_interrupt import jvm_of
from .conftest import Send, Streams

pytestmark = pytest.mark.pipeline

WAIT_S = 240
TEXT = """
name = "words"
trigger = "1 second"
[sources.lines]
topic = "{topic}"
[query]
sql = "select cast(value as string) as word from lines"
[result]
table = "table"
"""


def begin(directory: Path, bootstrap: str, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "ottla", "pipeline", "stream", "words.toml", "--master", "local[2]", *options]
    return subprocess.Popen(
        command,
        cwd=directory,
        env={**os.environ, "OTTLA_BOOTSTRAP_SERVER": bootstrap},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def test_ctrl_c_stops_stream_and_next_run_resumes(
    streams: Streams,
    send: Send,
    topic: str,
    bootstrap: str,
    tmp_path: Path,
    commands_in_session: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As from a terminal: sent to the command, its JVM and its workers."""
    (tmp_path / "words.toml").write_text(TEXT.format(topic=topic))
    send([b"one"])
    running = begin(tmp_path, bootstrap, "--json")
    line = json.loads(running.stdout.readline())
    assert (line["batch"], line["rows_in"], line["rows_out"], line["lag"]) == (0, 1, 1, 0)
    os.killpg(running.pid, signal.SIGINT)
    assert (*running.communicate(timeout=WAIT_S), running.returncode) == (b"", b"", 130)
    send([b"two", b"three"])
    monkeypatch.chdir(tmp_path)
    arguments = ["stream", "words.toml", "--once", "--json", "-b", bootstrap]
    again = CliRunner().invoke(pipeline, arguments, catch_exceptions=False)
    assert (again.exit_code, again.stderr) == (0, "")
    summary: dict[str, Any] = json.loads(again.stdout)
    assert (summary["rows_in"], summary["rows_out"], summary["lag"], summary["name"]) == (2, 2, 0, "words")
    assert sorted(row["word"] for row in streams.rows()) == ["one", "three", "two"]


def test_a_reader_of_batches_that_leaves_ends_it(send: Send, topic: str, bootstrap: str, tmp_path: Path) -> None:
    """As with `| head -1`."""
    (tmp_path / "words.toml").write_text(TEXT.format(topic=topic))
    send([b"one"])
    running = begin(tmp_path, bootstrap, "--json")
    assert json.loads(running.stdout.readline())["batch"] == 0
    running.stdout.close()
    send([b"two"])
    assert (running.wait(WAIT_S), running.stderr.read()) == (0, b"")


def test_ctrl_c_while_spark_starts(send: Send, topic: str, bootstrap: str, tmp_path: Path) -> None:
    (tmp_path / "words.toml").write_text(TEXT.format(topic=topic))
    running = begin(tmp_path, bootstrap)
    while jvm_of(running.pid) is None:
        assert running.poll() is None
        time.sleep(0.01)
    running.send_signal(signal.SIGINT)
    assert (*running.communicate(timeout=WAIT_S), running.returncode) == (b"", b"", 130)


def test_spark_connect_is_refused(tmp_path: Path) -> None:
    (tmp_path / "words.toml").write_text(TEXT.format(topic="words"))
    result = CliRunner().invoke(cli, ["pipeline", "stream", str(tmp_path / "words.toml"), "--master", "sc://h"])
    assert (result.exit_code, result.output.count("\n")) == (2, 1)
    assert "a stream can't run on Spark Connect" in result.output
    assert "name a master such as spark://HOST:7077" in result.output


def test_the_line_of_a_batch() -> None:
    batch = BatchProgress(12, 5000, 1, 2, 0, 40, "2026-03-02T10:20:00.000Z", 2.0)
    assert batch_text(batch) == (
        "batch 12: 5,000 rows in, 1 row out, 2,500 rows/s, lag 40, watermark 2026-03-02T10:20:00.000Z, 2 dead letters"
    )
