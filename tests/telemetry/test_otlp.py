"""Decoding of pushed metrics: every input yields metrics or one of two errors, in bounded steps."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("opentelemetry.proto", reason="needs the extra `telemetry`")

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from ottla.common.errors import ErrorCode, KafkaError
from ottla.telemetry.bounds import MAX_ATTRIBUTES, MAX_BUCKETS, MAX_POINTS
from ottla.telemetry.histogram import PushedHistogram
from ottla.telemetry.otlp import DecodedMetric, Point, read


def metrics_of(data: MetricsData) -> list[DecodedMetric]:
    parts = read(memoryview(data.SerializeToString()))
    return [part for part in parts if isinstance(part, DecodedMetric)]


def test_gauges_and_sums_are_read() -> None:
    data = MetricsData()
    resource = data.resource_metrics.add()
    resource.resource.attributes.add(key="group_id").value.string_value = "g"
    scope = resource.scope_metrics.add()
    gauge = scope.metrics.add(name="g", description="text", unit="ms").gauge.data_points.add(as_int=-3)
    gauge.attributes.add(key="partition").value.int_value = 7
    gauge.attributes.add(key="leads").value.bool_value = True
    gauge.attributes.add(key="list").value.array_value.values.add()
    total = scope.metrics.add(name="s").sum
    total.is_monotonic, total.aggregation_temporality = True, 1
    total.data_points.add(as_double=1.5)
    total.data_points.add(as_double=float("nan"))
    total.data_points.add(flags=1)
    scope.metrics.add(name="e").exponential_histogram.data_points.add(count=1)
    parts = [part for part in read(memoryview(data.SerializeToString())) if part is not None]
    assert parts == [
        {"group_id": "g"},
        DecodedMetric([Point("g", "gauge", False, {"partition": "7", "leads": "true"}, -3.0)], 0),
        DecodedMetric([Point("s", "counter", True, {}, 1.5)], 0),
        DecodedMetric([], 1),
    ]


def histogram(**fields: Any) -> DecodedMetric:
    """The result for one point of a histogram."""
    data = MetricsData()
    found = data.resource_metrics.add().scope_metrics.add().metrics.add(name="h").histogram
    found.data_points.add(**fields)
    (metric,) = metrics_of(data)
    return metric


def test_histogram_has_cumulative_buckets() -> None:
    (point,) = histogram(count=6, sum=7.5, bucket_counts=[1, 0, 5], explicit_bounds=[0.5, 2.0]).points
    assert point == Point("h", "histogram", False, {}, PushedHistogram((0.5, 2.0), (1.0, 1.0, 6.0), 7.5))
    (point,) = histogram(count=3).points
    assert point.value == PushedHistogram((), (3.0,), None)


@pytest.mark.parametrize(
    "fields",
    [
        {"count": 7, "bucket_counts": [1, 5], "explicit_bounds": [1.0]},
        {"count": 6, "bucket_counts": [1, 5], "explicit_bounds": [1.0, 2.0]},
        {"count": 6, "bucket_counts": [1, 0, 5], "explicit_bounds": [2.0, 2.0]},
        {"count": 6, "bucket_counts": [1, 0, 5], "explicit_bounds": [1.0, float("nan")]},
        {"count": 6, "bucket_counts": [1, 5], "explicit_bounds": [float("inf")]},
        {"bucket_counts": [0] * (MAX_BUCKETS + 1), "explicit_bounds": [float(bound) for bound in range(MAX_BUCKETS)]},
    ],
)
def test_histogram_that_is_malformed_or_too_large_is_omitted(fields: dict[str, Any]) -> None:
    assert histogram(**fields) == DecodedMetric([], 1)


def test_points_and_attributes_of_a_metric_are_bounded() -> None:
    data = MetricsData()
    gauge = data.resource_metrics.add().scope_metrics.add().metrics.add(name="g").gauge
    for index in range(MAX_POINTS + 5):
        gauge.data_points.add(as_int=index)
    for index in range(MAX_ATTRIBUTES + 5):
        gauge.data_points[0].attributes.add(key=f"k{index}").value.int_value = 1
    (metric,) = metrics_of(data)
    assert (len(metric.points), metric.omitted) == (MAX_POINTS, 5)
    assert len(metric.points[0].attributes) == MAX_ATTRIBUTES


def test_metric_that_is_too_large_is_refused_undecoded() -> None:
    data = MetricsData()
    data.resource_metrics.add().scope_metrics.add().metrics.add(name="x" * (256 * 1024 + 1))
    with pytest.raises(KafkaError) as caught:
        metrics_of(data)
    assert caught.value.code is ErrorCode.TELEMETRY_TOO_LARGE


@given(st.binary(max_size=200), st.sampled_from([b"", b"\x0a", b"\x0a\x20", b"\x0a\x40\x12\x3e\x12\x3c"]))
def test_any_bytes_are_decoded_or_refused(data: bytes, prefix: bytes) -> None:
    code = ErrorCode.NONE
    try:
        for _ in read(memoryview(prefix + data)):
            pass
    except KafkaError as error:
        code = error.code
    assert code in (ErrorCode.NONE, ErrorCode.INVALID_RECORD, ErrorCode.TELEMETRY_TOO_LARGE)
