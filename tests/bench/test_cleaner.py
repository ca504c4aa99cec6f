"""Evaluation of `bench/cleaner.py`, and its errors; the runs themselves need both brokers."""

from __future__ import annotations

from pathlib import Path

import cleaner
import pytest
from harness.plots import draw_bars

BEFORE = cleaner.Contents({b"a": (7, 1), b"b": (5, 2)}, 8)


def runs() -> list[dict[str, object]]:
    """Two rounds on a machine that became twice as slow."""
    found = []
    for round_number, slower in enumerate((1, 2)):
        for way, rate in (("ottla", 120.0), ("kafka", 60.0)):
            found.append({"way": way, "round": round_number, "figures": dict.fromkeys(cleaner.PANELS, rate / slower)})
    return found


def test_ratios_are_those_of_one_round() -> None:
    reported = cleaner.summary(runs())
    assert reported["ottla"]["of_broker"] == (120.0 + 60.0) / 2
    assert reported["to_kafka"]["of_broker"] == 2.0


def test_one_peer_alone_has_no_ratio() -> None:
    assert set(cleaner.summary([run for run in runs() if run["way"] == "ottla"])) == {"ottla"}


def test_a_latest_record_that_is_another_or_gone_fails_the_run() -> None:
    cleaner.check("ottla", BEFORE, cleaner.Contents(BEFORE.latest, 2))
    for latest in ({b"a": (7, 1)}, {b"a": (7, 1), b"b": (4, 2)}, {b"a": (7, 3), b"b": (5, 2)}):
        with pytest.raises(RuntimeError, match="of 2 keys 1 have another latest record"):
            cleaner.check("ottla", BEFORE, cleaner.Contents(latest, 2))


def test_a_run_that_cleaned_nothing_fails() -> None:
    with pytest.raises(RuntimeError, match="nothing was cleaned"):
        cleaner.check("kafka", BEFORE, BEFORE)


def test_checkpoint_contains_the_clean_offset(tmp_path: Path) -> None:
    assert cleaner.clean_up_to(tmp_path) == 0
    checkpoint = tmp_path / "cleaner-offset-checkpoint"
    checkpoint.write_text("0\n2\nrecords-old 0 9\nother 0 8\n")
    assert cleaner.clean_up_to(tmp_path) == 0
    checkpoint.write_text("0\n2\nother 0 8\nrecords 0 700\n")
    assert cleaner.clean_up_to(tmp_path) == 700


def test_every_figure_of_the_plot_is_drawn(tmp_path: Path) -> None:
    path = tmp_path / "plots" / "cleaner.png"
    draw_bars("title", cleaner.PANELS, runs(), path)
    assert path.read_bytes().startswith(b"\x89PNG")
