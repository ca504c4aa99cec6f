"""MirrorMaker 2 settings and evaluation of `bench/mirror.py`; the runs themselves need brokers."""

from __future__ import annotations

from pathlib import Path

from harness.peers import Ottla

import mirror


def test_each_way_has_the_median_of_its_rounds() -> None:
    runs = [
        {"way": way, "round": number, "figures": {"cpu_s_per_gb": figure}}
        for way, figures in (("ottla", (1.0, 9.0, 2.0)), ("mirrormaker", (30.0, 20.0, 70.0)))
        for number, figure in enumerate(figures)
    ]
    assert mirror.summary(runs) == {"ottla": {"cpu_s_per_gb": 2.0}, "mirrormaker": {"cpu_s_per_gb": 30.0}}


def test_both_keep_the_topic_name_and_skip_aborted_records(tmp_path: Path) -> None:
    source, target = Ottla("source", home=tmp_path), Ottla("target", home=tmp_path)
    assert "--topics load" in " ".join(mirror.command("ottla", source, target))
    mirror.command("mirrormaker", source, target)
    lines = (tmp_path / "mirror.properties").read_text().splitlines()
    assert f"source.bootstrap.servers={source.bootstrap_servers}" in lines
    assert "source->target.topics=load" in lines
    assert "source.consumer.isolation.level=read_committed" in lines
