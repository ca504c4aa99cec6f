"""A small day of page views through every stream of examples/streams; `make page-views` is the large one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra `pipeline`")

from examples.streams.page_views import a_day
from tests.pipeline.page_views.oracle import sessions, sliding
from tests.pipeline.page_views.trial import Trial

from ottla.testing import Broker

VIEWS = 20_000


def lines(seed: int) -> list[list[tuple[str, list[Any]]]]:
    return [[(topic, list(records)) for topic, records in part.items()] for part in a_day(1_000, seed).parts(2)]


def test_a_seed_gives_the_same_day() -> None:
    assert lines(1) == lines(1)
    assert lines(1) != lines(2)


def test_a_day_is_untidy() -> None:
    views = a_day(VIEWS).views
    assert len(views.at) == VIEWS
    assert (views.arrived[1:] >= views.arrived[:-1]).all()
    assert (views.at[1:] < views.at[:-1]).sum() > VIEWS / 100
    assert views.again.sum() == VIEWS // 200
    assert len(set(views.number.tolist())) == VIEWS - VIEWS // 200
    late = views.arrived - views.at
    assert (late > 600).sum() == VIEWS // 1000
    assert (late[late < 3600] < 600).all()


def test_windows_and_sessions_by_hand() -> None:
    assert sorted(sliding(1250, 600, 300)) == [900, 1200]
    assert list(sliding(1200, 600, 600)) == [1200]
    assert list(sessions([(10, 1), (0, 2), (40, 4), (71, 8)], 30)) == [(0, 70, 3, 7), (71, 101, 1, 8)]
    assert list(sessions([], 30)) == []


@pytest.mark.pipeline
@pytest.mark.timeout(900)
def test_every_row_is_that_of_plain_python(
    spark: Any, tmp_path: Path, ottla_broker_factory: Callable[[], Broker]
) -> None:
    servers = ottla_broker_factory().bootstrap_servers
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    try:
        outcomes = Trial(spark, servers, tmp_path).run(a_day(VIEWS), runs=1)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)
    assert {outcome.name: outcome.is_equal for outcome in outcomes} == {outcome.name: True for outcome in outcomes}
    assert outcomes[0].late == VIEWS // 1000
