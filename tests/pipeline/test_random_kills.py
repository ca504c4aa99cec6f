"""Loads, snapshots and streams while drivers, workers, their JVMs and the broker are killed; a second run, compactions
and vacuums run concurrently and are killed too. The result equals the topic, and nothing is left behind.

OTTLA_TRIAL_KILLS=100 sets the number of kills, OTTLA_TRIAL_MINUTES a time limit instead, OTTLA_TRIAL_JOB and
OTTLA_TRIAL_FORMAT the job and the format, and OTTLA_TRIAL_SEED the order, as in `make exactly-once-load` and `make
exactly-once-topic`.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the extra `pipeline`")
pytest.importorskip("pyiceberg", reason="needs the extra `iceberg`")

from ottla.testing import Broker

from .kill_trial import WAIT_S, Trial
from .trial_jobs import TOPIC_KIND

pytestmark = pytest.mark.pipeline

SHORT: dict[str, tuple[str, ...]] = {
    "load-delta": (),
    "local-delta": ("worker", "driver"),
    "stream-topic": ("broker", "java"),
}
"""A short trial with its first victims; tests of their own kill the other jobs at each of their steps."""

IS_LONG = "OTTLA_TRIAL_KILLS" in os.environ
KILLS = int(os.environ.get("OTTLA_TRIAL_KILLS", "1"))
MINUTES = float(os.environ.get("OTTLA_TRIAL_MINUTES", "60"))
SEED = int(os.environ.get("OTTLA_TRIAL_SEED", "1"))


def cases() -> Iterable[str]:
    """The named jobs in the named formats, or those of the short form."""
    jobs, kinds = os.environ.get("OTTLA_TRIAL_JOB"), os.environ.get("OTTLA_TRIAL_FORMAT")
    if not jobs or not kinds:
        return SHORT
    pairs = itertools.product(jobs.split(","), kinds.split(","))
    return [f"{job}-{kind}" for job, kind in pairs if kind != TOPIC_KIND or job == "stream"]


@pytest.mark.promise("P1")
@pytest.mark.timeout(900 + 120 * KILLS)
@pytest.mark.parametrize("case", cases())
def test_through_kills(case: str, tmp_path: Path, ottla_broker_factory: Callable[..., Broker]) -> None:
    job, kind = case.split("-")
    broker = ottla_broker_factory(data_dir=tmp_path / "broker", start_timeout_s=WAIT_S)
    trial = Trial(broker, tmp_path, job, kind, SEED)
    try:
        trial.run(KILLS, MINUTES, () if IS_LONG else SHORT[case])
    finally:
        trial.close()
        print(f"{case}, seed {SEED}: {trial.kills.total()} kills; all that was said is in {tmp_path}\n{trial.report()}")
        (tmp_path / "broker.log").write_text(broker.logs())
