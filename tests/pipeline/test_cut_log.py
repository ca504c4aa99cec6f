"""A real broker with a truncated log is recognized, although its offsets continue past the loaded ones."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

confluent_kafka = pytest.importorskip("confluent_kafka")
pytest.importorskip("deltalake", reason="needs the extra `pipeline`")

from ottla.client.admin.cluster import Cluster  # noqa: E402
from ottla.pipeline.load import driver as loading  # noqa: E402
from ottla.pipeline.load.land import LandSettings, land_task  # noqa: E402
from ottla.pipeline.model.decode import SCHEMA  # noqa: E402
from ottla.pipeline.model.plan import DataLossError, PlanSettings, make_plan  # noqa: E402
from ottla.pipeline.sinks.delta import DeltaTarget  # noqa: E402
from ottla.record.batch import iter_batches  # noqa: E402
from ottla.testing import Broker  # noqa: E402

from .sinks.test_delta import rows  # noqa: E402


def produce(broker: Broker, start: int, end: int) -> None:
    """One batch a record."""
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0})
    for number in range(start, end):
        producer.produce("clicks", b"%d" % number)
        assert producer.flush(30) == 0


def load(broker: Broker, target: DeltaTarget, settings: PlanSettings) -> list[str]:
    """One load without Spark; returns its notes."""
    open_cluster = partial(Cluster, broker.bootstrap_servers)
    with open_cluster() as cluster:
        plan = make_plan(cluster, target, ["clicks"], settings, target.dead_letters())
    land_settings = LandSettings(
        open_cluster, target.ensure(SCHEMA), target.dead_letters().layout(), os.urandom(8).hex()
    )
    landed = [land_task(number, task, land_settings) for number, task in enumerate(plan.tasks)]
    assert [row.error for row in landed] == [""] * len(landed)
    if not plan.is_empty:
        loading._commit(plan, target, landed, land_settings.load_id)
    return plan.notes


@pytest.mark.promise("P5")
def test_log_truncated_by_power_failure(ottla_broker_factory: Callable[..., Broker], tmp_path: Path) -> None:
    broker, target = ottla_broker_factory(), DeltaTarget(tmp_path / "table")
    with Cluster(broker.bootstrap_servers) as cluster:
        cluster.topics.create("clicks", 1)
    produce(broker, 0, 10)
    load(broker, target, PlanSettings())
    broker.restart()
    produce(broker, 10, 12)
    assert load(broker, target, PlanSettings()) == []  # a restart that loses nothing is none of this
    broker.kill()
    (segment,) = (broker.data_dir / "clicks-0").glob("*.log")
    kept = list(iter_batches(segment.read_bytes()))[:6]
    assert kept[-1].next_offset == 6
    os.truncate(segment, sum(batch.size_bytes for batch in kept))
    broker.start()
    produce(broker, 100, 120)
    with pytest.raises(DataLossError, match=r"truncated to offset 6, but the table has offsets up to 12"):
        load(broker, target, PlanSettings())
    (note,) = load(broker, target, PlanSettings(on_data_loss="skip"))
    assert "truncated to offset 6" in note
    values = [value for _, _, value in rows(Path(target.location))]
    assert sorted(values) == sorted(b"%d" % number for number in [*range(12), *range(100, 120)])
    assert load(broker, target, PlanSettings()) == []
