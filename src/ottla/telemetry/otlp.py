"""Metrics of a push, decoded from OpenTelemetry's MetricsData by the package `opentelemetry-proto` (extra `telemetry`).

Levels above a metric are walked here, and each metric is decoded alone: so the number of messages and the memory of one
step are bounded before anything is decoded, whatever a client sends. Gauges, sums and histograms are read; exponential
histograms and summaries are counted as omitted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import accumulate, islice
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_DELTA,
    DataPointFlags,
    Metric,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from ottla.common.errors import ErrorCode, KafkaError
from ottla.telemetry.bounds import (
    MAX_ATTRIBUTES,
    MAX_BUCKETS,
    MAX_MESSAGES,
    MAX_METRIC_BYTES,
    MAX_POINTS,
    MAX_RESOURCE_BYTES,
)
from ottla.telemetry.histogram import PushedHistogram

_RESOURCE_METRICS = 1
_RESOURCE, _SCOPE_METRICS = 1, 2
_METRICS = 2
"""Field numbers of the levels above a metric."""
_MAX_VARINT_BYTES = 10
_NO_VALUE = int(DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK)
_DELTA = int(AGGREGATION_TEMPORALITY_DELTA)

Attributes = dict[str, str]


class Point(NamedTuple):
    """One value of a metric."""

    metric: str
    kind: str
    """`gauge`, `counter` or `histogram`, as in Prometheus."""
    is_delta: bool
    """Whether the value is the growth since the last push."""
    attributes: Attributes
    value: float | PushedHistogram


class DecodedMetric(NamedTuple):
    """Points of one metric; `omitted` counts those above `MAX_POINTS`, malformed ones, and metrics of other kinds."""

    points: list[Point]
    omitted: int


def read(data: memoryview) -> Iterator[Attributes | DecodedMetric | None]:
    """Yield the attributes of each resource, its metrics, and None for every other part.

    Raises KafkaError INVALID_RECORD, TELEMETRY_TOO_LARGE.
    """
    fields = _FieldReader()
    for number, resource_metrics in fields.read(data):
        yield None
        if number != _RESOURCE_METRICS:
            continue
        for part, content in fields.read(resource_metrics):
            if part == _RESOURCE:
                yield _attributes(_decode(Resource, content, MAX_RESOURCE_BYTES).attributes)
            elif part == _SCOPE_METRICS:
                yield None
                for inner, metric in fields.read(content):
                    yield _read_metric(_decode(Metric, metric, MAX_METRIC_BYTES)) if inner == _METRICS else None


class _FieldReader:
    """Walks messages; counts the fields of all of them."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count = 0

    def read(self, data: memoryview) -> Iterator[tuple[int, memoryview]]:
        """Yield number and content of each field with a length; fields of other types are skipped."""
        position = 0
        while position < len(data):
            self._count += 1
            if self._count > MAX_MESSAGES:
                raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE, f"metrics of more than {MAX_MESSAGES} messages")
            key, position = _varint(data, position)
            if key & 7 == 2:
                size, position = _varint(data, position)
                if size > len(data) - position:
                    raise _invalid("a field is longer than its message")
                yield key >> 3, data[position : position + size]
                position += size
            else:
                position = _skip(data, position, key & 7)


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    if position < len(data) and data[position] < 0x80:
        return data[position], position + 1
    value = shift = 0
    for end in range(position, min(position + _MAX_VARINT_BYTES, len(data))):
        byte = data[end]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, end + 1
        shift += 7
    raise _invalid("a number does not end")


def _skip(data: memoryview, position: int, wire_type: int) -> int:
    if wire_type == 0:
        return _varint(data, position)[1]
    size = {1: 8, 5: 4}.get(wire_type)
    if size is None or size > len(data) - position:
        raise _invalid("a field has an unknown type or is cut short")
    return position + size


def _decode(kind: Any, content: memoryview, max_bytes: int) -> Any:
    if len(content) > max_bytes:
        raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE, f"a metric or resource is larger than {max_bytes} bytes")
    try:
        return kind.FromString(bytes(content))
    except DecodeError as error:
        raise _invalid(str(error)) from error


def _invalid(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, f"the metrics can't be decoded: {reason}")


def _read_metric(metric: Any) -> DecodedMetric:
    kind = metric.WhichOneof("data")
    if kind not in ("gauge", "sum", "histogram"):
        return DecodedMetric([], 1)
    data = getattr(metric, kind)
    family = "counter" if kind == "sum" and data.is_monotonic else "gauge" if kind != "histogram" else kind
    is_delta = kind != "gauge" and data.aggregation_temporality == _DELTA
    points, omitted = [], max(0, len(data.data_points) - MAX_POINTS)
    for point in islice(data.data_points, MAX_POINTS):
        if point.flags & _NO_VALUE:
            continue
        value = _histogram(point) if kind == "histogram" else _number(point)
        if value is None:
            omitted += kind == "histogram"  # Java clients push NaN for averages without a measurement
        else:
            points.append(Point(metric.name, family, is_delta, _attributes(point.attributes), value))
    return DecodedMetric(points, omitted)


def _number(point: Any) -> float | None:
    value = float(point.as_int if point.HasField("as_int") else point.as_double)
    return None if math.isnan(value) else value


def _histogram(point: Any) -> PushedHistogram | None:
    """A point with its buckets added up; None if they contradict each other or are too many."""
    if max(len(point.bucket_counts), len(point.explicit_bounds) + 1) > MAX_BUCKETS:
        return None
    buckets = tuple(point.bucket_counts) or (point.count,)
    has_sum = point.HasField("sum") and not math.isnan(point.sum)
    found = PushedHistogram(
        tuple(point.explicit_bounds), tuple(map(float, accumulate(buckets))), point.sum if has_sum else None
    )
    return found if found.is_valid and sum(buckets) == point.count else None


def _attributes(pairs: Any) -> Attributes:
    found: Attributes = {}
    for pair in islice(pairs, MAX_ATTRIBUTES):
        kind = pair.value.WhichOneof("value")
        if kind in ("string_value", "int_value", "double_value", "bool_value"):
            value = getattr(pair.value, kind)
            found[pair.key] = str(value).lower() if kind == "bool_value" else str(value)
    return found
