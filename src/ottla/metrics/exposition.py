"""Rendering of the registry as Prometheus text (exposition format 0.0.4), in slices.

Rendering happens on the broker's loop, so `render` yields after every `LINES_PER_SLICE` lines: a slice takes well under
a millisecond, and other work can run between slices. So values are from slightly different times, but the lines of one
histogram are consistent.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from ottla.metrics.registry import Counter, Family, Gauge, Histogram, Labels, Metric, MetricsRegistry

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LINES_PER_SLICE = 200


def render(registry: MetricsRegistry) -> Iterator[bytes]:
    """Render the text in slices; series added or removed meanwhile may or may not be included."""
    lines: list[str] = []
    for family in list(registry.families()):
        lines.append(f"# HELP {family.name} {_escape_help(family.help)}")
        lines.append(f"# TYPE {family.name} {family.kind}")
        for labels, metric in _series(family):
            lines.extend(_render_series(family.name, labels, metric))
            if len(lines) >= LINES_PER_SLICE:
                yield _encode(lines)
                lines = []
    if lines:
        yield _encode(lines)


def _series(family: Family) -> list[tuple[Labels, Metric]]:
    return list(family.series.items())


def _render_series(name: str, labels: Labels, metric: Metric) -> list[str]:
    if isinstance(metric, Counter):
        return [f"{name}{_label_text(labels)} {metric.value}"]
    if isinstance(metric, Gauge):
        return [f"{name}{_label_text(labels)} {_number(metric.current())}"]
    return _render_histogram(name, labels, metric)


def _render_histogram(name: str, labels: Labels, histogram: Histogram) -> list[str]:
    lines = []
    cumulated = 0
    for bound, count in zip((*histogram.bounds, math.inf), histogram.counts, strict=True):
        cumulated += count
        lines.append(f"{name}_bucket{_label_text((*labels, ('le', _number(bound))))} {cumulated}")
    text = _label_text(labels)
    lines.append(f"{name}_sum{text} {_number(histogram.sum)}")
    lines.append(f"{name}_count{text} {histogram.total}")
    return lines


def _label_text(labels: Labels) -> str:
    """Omit labels with an empty value: for Prometheus both are the same series."""
    pairs = ",".join(f'{name}="{_escape_label(value)}"' for name, value in labels if value)
    return f"{{{pairs}}}" if pairs else ""


def _number(value: float) -> str:
    if value == math.inf:
        return "+Inf"
    if value == -math.inf:
        return "-Inf"
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return "NaN" if value != value else str(value)


def _escape_label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _escape_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _encode(lines: list[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode("utf-8", "replace")
