"""Loads into a table while drivers, workers, their JVMs and the broker are killed, and a second loader, compactions and
vacuums run beside and are killed too: the table is the topic, and nothing is left behind.

OTTLA_LOAD_KILLS=100 makes it so many kills, OTTLA_LOAD_MINUTES as many as there is time for, OTTLA_LOAD_FORMAT names
the formats and OTTLA_LOAD_SEED the order, as `make exactly-once-load` does.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the extra `pipeline`")
pytest.importorskip("pyiceberg", reason="needs the extra `iceberg`")

from ottla.testing import Broker

from .load_trial import Trial

pytestmark = pytest.mark.pipeline

KILLS = int(os.environ.get("OTTLA_LOAD_KILLS", "3"))
MINUTES = float(os.environ.get("OTTLA_LOAD_MINUTES", "60"))
FORMATS = os.environ.get("OTTLA_LOAD_FORMAT", "delta,iceberg").split(",")
SEED = int(os.environ.get("OTTLA_LOAD_SEED", "1"))


@pytest.mark.timeout(900 + 120 * KILLS)
@pytest.mark.parametrize("kind", FORMATS)
def test_through_kills(kind: str, tmp_path: Path, ottla_broker_factory: Callable[..., Broker]) -> None:
    broker = ottla_broker_factory(data_dir=tmp_path / "broker")
    trial = Trial(broker, tmp_path, kind, SEED)
    try:
        trial.run(KILLS, MINUTES)
    finally:
        trial.close()
        print(f"{kind}, seed {SEED}: {trial.kills.total()} kills; all that was said is in {tmp_path}\n{trial.report()}")
        (tmp_path / "broker.log").write_text(broker.logs())
