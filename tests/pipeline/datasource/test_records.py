"""The records of a range as Arrow batches, without Spark."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow", reason="needs the extra `pipeline`")

from ottla.common.kafka.ids import uuid_to_string
from ottla.pipeline.datasource.bounds import Bounds
from ottla.pipeline.datasource.records import FETCH_BYTES, read_records
from ottla.pipeline.model.plan import OffsetRange

from ..memory_cluster import MemoryCluster

MIB = 1 << 20


def test_a_batch_is_a_small_part_of_a_range() -> None:
    """A batch has several copies on its way, in a worker and in the JVM."""
    cluster = MemoryCluster()
    cluster.create("clicks", 1)
    for _ in range(64):
        cluster.partitions["clicks", 0].append_values([bytes(MIB // 80)] * 10)
    whole = OffsetRange("clicks", uuid_to_string(cluster.topic_ids["clicks"]), 0, 0, 640, 0)
    batches = list(read_records(cluster, whole, Bounds(), "read_committed", "fail"))  # type: ignore[arg-type]
    assert max(batch.nbytes for batch in batches) <= FETCH_BYTES + MIB // 4 < 3 * MIB
    assert [offset for batch in batches for offset in batch.column("offset").to_pylist()] == list(range(640))
