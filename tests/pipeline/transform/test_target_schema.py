"""Fields are inferred from a sample, and none without a sample."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="needs the extra `pipeline`")

from ottla.client.wire.model import FetchResult
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.ids import uuid_to_string
from ottla.pipeline.model.plan import OffsetRange
from ottla.pipeline.transform import target_schema
from ottla.pipeline.transform.decode_options import DecodeOptions
from ottla.pipeline.transform.open_format import open_format
from ottla.pipeline.transform.target_schema import sample_values, settle_fields

from ..memory_cluster import MemoryCluster


class Failing(MemoryCluster):
    """A cluster with failing fetches."""

    def __init__(self, failure: KafkaError | None) -> None:
        super().__init__()
        self.failure = failure

    def fetch(self, topic: str, partition: int, offset: int, **named: Any) -> FetchResult:
        if self.failure is not None:
            raise self.failure
        return super().fetch(topic, partition, offset, **named)


def fields_with(failure: KafkaError | None) -> list[str]:
    """Fields of JSON values if each fetch fails with that error."""
    cluster = Failing(failure)
    cluster.create("clicks", 1)
    cluster.partitions["clicks", 0].append_values([b'{"page": "a"}'])
    whole = OffsetRange("clicks", uuid_to_string(cluster.topic_ids["clicks"]), 0, 0, 1, 0)
    json_format = open_format(DecodeOptions("json"))
    assert json_format is not None
    return list(settle_fields(json_format, cluster, [whole], "read_committed").names)


def test_fields_are_inferred_from_sample() -> None:
    assert fields_with(None) == ["page"]


def test_deleted_records_give_no_sample() -> None:
    """The task that reads those offsets reports the loss."""
    assert fields_with(KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)) == []


def test_unreachable_broker_infers_no_fields() -> None:
    """A stream would otherwise never have fields, and a load would omit the columns."""
    with pytest.raises(KafkaError, match="no answer to Fetch"):
        fields_with(KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no answer to Fetch"))


def test_small_loads_are_inspected_whole_large_ones_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = MemoryCluster()
    cluster.create("clicks", 2)
    for index, count in ((0, 20), (1, 2_000)):
        for number in range(0, count, 10):
            cluster.partitions["clicks", index].append_values([b"%d" % (number + each) for each in range(10)])
    topic_id = uuid_to_string(cluster.topic_ids["clicks"])
    ranges = [OffsetRange("clicks", topic_id, index, 0, count, count) for index, count in ((1, 2_000), (0, 20))]
    whole = sample_values(cluster, ranges, "read_committed")["clicks"].to_pylist()
    assert sorted(map(int, whole)) == sorted([*range(20), *range(2_000)])
    monkeypatch.setattr(target_schema, "SAMPLE_BYTES", 8_000)
    some = list(map(int, sample_values(cluster, ranges, "read_committed")["clicks"].to_pylist()))
    assert some[:20] == list(range(20))
    assert len(some) < 1_000
    assert {number // 250 for number in some} == set(range(8))
