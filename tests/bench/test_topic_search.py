"""The search benchmark: commands of both sides, a row for each case and tool, skipped tools."""

from __future__ import annotations

import argparse
import json
import shutil

import pytest
import topic_search


def test_documents_have_the_same_needles_in_text_and_field() -> None:
    found = [json.loads(each) for each in topic_search.documents(2_000)]
    assert sum(topic_search.NEEDLE in each["text"] for each in found) == topic_search.NEEDLES
    assert [each["user"]["id"] == topic_search.NEEDLE_ID for each in found] == [
        topic_search.NEEDLE in each["text"] for each in found
    ]


def test_row_counts_records_a_cpu_second() -> None:
    runs = [topic_search.Run("word", "ottla search", number, 1.0, cpu_s, 20) for number, cpu_s in enumerate((4.0, 2.0))]
    (row,) = topic_search.summary(runs, 1_000)
    assert (row["records_a_cpu_second"], row["matches"]) == (500, [20])


def test_missing_tool_is_reported_and_its_rows_skipped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "jq" else name)
    ran: list[str] = []

    def measured(case: str, tool: str, number: int, command: str) -> topic_search.Run:
        ran.append(tool)
        return topic_search.Run(case, tool, number, 1.0, 1.0, 0)

    monkeypatch.setattr(topic_search, "measured", measured)
    topic_search.compare("127.0.0.1:1", argparse.Namespace(rounds=1, records=100, processes=1))
    assert "SKIPPED: jq is not installed" in capsys.readouterr().err
    assert "kcat | jq" not in ran
    assert "kcat | grep" in ran
