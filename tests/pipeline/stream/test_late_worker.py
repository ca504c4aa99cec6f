"""Spark's limit of ten seconds for the start of a Python source's process, which a busy machine exceeds."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from .conftest import Send, Streams

pytestmark = pytest.mark.pipeline

TEXT = """
    name = "late"
    [sources.lines]
    topic = "{topic}"
    [query]
    sql = "select cast(value as string) as word from lines"
    [result]
    table = "DIR/table"
"""
PYTHON = """#!/bin/sh
case "$*" in *source_runner*) mkdir {first} 2> /dev/null && exit 1 ;; esac
exec {python} "$@"
"""


def test_query_with_late_source_is_restarted(
    spark: Any, streams: Streams, send: Send, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, python = tmp_path / "first", tmp_path / "python"
    python.write_text(PYTHON.format(first=shlex.quote(str(first)), python=shlex.quote(spark.sparkContext.pythonExec)))
    python.chmod(0o755)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(python))
    send([b"one", b"two"])
    summary = streams.run(TEXT.format(topic=topic))
    assert first.exists()
    assert (summary.rows_in, summary.rows_out) == (2, 2)
    assert sorted(row["word"] for row in streams.rows()) == ["one", "two"]
