"""Rendering of registry and collectors as Prometheus text (exposition format 0.0.4), in slices.

Rendering happens on the broker's loop, so `render` yields after every `LINES_PER_SLICE` lines or steps: a slice takes
well under a millisecond, and other work can run between slices. So values are from slightly different times, but the
lines of one histogram are consistent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from ottla.metrics.registry import Counter, Family, Gauge, Histogram, Labels, Metric, MetricsRegistry
from ottla.metrics.series import Collector, FamilyStart, label_text

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LINES_PER_SLICE = 200


Spelling = Callable[[str], str]
"""Maps the name of a family, or of a label of the registry, to the name in the text."""


def render(
    registry: MetricsRegistry, collectors: Sequence[Collector] = (), spelling: Spelling = str
) -> Iterator[bytes]:
    """Render the text in slices; series added or removed meanwhile may or may not be included.

    A slice is empty if its steps produced no line.
    """
    lines: list[str] = []
    for family in list(registry.families()):
        name = spelling(family.name)
        lines += _head(name, family.help, family.kind)
        for labels, metric in _series(family):
            if spelling is not str:
                labels = tuple((spelling(label), value) for label, value in labels)
            lines.extend(_render_series(name, labels, metric))
            if len(lines) >= LINES_PER_SLICE:
                yield _encode(lines)
                lines = []
    for collector in collectors:
        name = ""
        for number, step in enumerate(collector(), start=1):
            if isinstance(step, FamilyStart):
                name = spelling(step.name)
                lines += _head(name, step.help, step.kind)
            elif step is not None:
                lines.append(f"{name}{step[0]} {_number(step[1])}")
            if number % LINES_PER_SLICE == 0:
                yield _encode(lines)
                lines = []
    if lines:
        yield _encode(lines)


def _head(name: str, help_text: str, kind: str) -> tuple[str, str]:
    return f"# HELP {name} {_escape_help(help_text)}", f"# TYPE {name} {kind}"


def _series(family: Family) -> list[tuple[Labels, Metric]]:
    return list(family.series.items())


def _render_series(name: str, labels: Labels, metric: Metric) -> list[str]:
    if isinstance(metric, Counter):
        return [f"{name}{label_text(labels)} {metric.value}"]
    if isinstance(metric, Gauge):
        return [f"{name}{label_text(labels)} {_number(metric.current())}"]
    return _render_histogram(name, labels, metric)


def _render_histogram(name: str, labels: Labels, histogram: Histogram) -> list[str]:
    lines = []
    cumulated = 0
    for bound, count in zip((*histogram.bounds, math.inf), histogram.counts, strict=True):
        cumulated += count
        lines.append(f"{name}_bucket{label_text((*labels, ('le', _number(bound))))} {cumulated}")
    text = label_text(labels)
    lines.append(f"{name}_sum{text} {_number(histogram.sum)}")
    lines.append(f"{name}_count{text} {histogram.total}")
    return lines


def _number(value: float) -> str:
    if value == math.inf:
        return "+Inf"
    if value == -math.inf:
        return "-Inf"
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return "NaN" if value != value else str(value)


def _escape_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _encode(lines: list[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode("utf-8", "replace") if lines else b""
