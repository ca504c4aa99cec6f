"""Metrics as plain numbers, and their text parsed by an independent parser."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from ottla.common.errors import InvariantError
from ottla.metrics import registry as registry_module
from ottla.metrics.exposition import LINES_PER_SLICE, render
from ottla.metrics.registry import MetricsRegistry


def parsed(registry: MetricsRegistry) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    text = b"".join(render(registry)).decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_counters_and_gauges_show_their_values():
    registry = MetricsRegistry()
    counter = registry.counter("requests_total", "Requests", {"request": "Fetch"})
    counter.value += 3
    registry.counter("requests_total", "Requests", {"request": "Produce"})
    registry.gauge("connections", "Connections").value = 2.5
    registry.gauge("uptime", "Computed", read=lambda: 7)
    assert parsed(registry) == {
        ("requests_total", (("request", "Fetch"),)): 3,
        ("requests_total", (("request", "Produce"),)): 0,
        ("connections", ()): 2.5,
        ("uptime", ()): 7,
    }


def test_same_name_and_labels_give_the_same_object():
    registry = MetricsRegistry()
    first = registry.counter("a_total", "A", {"x": "1", "y": "2"})
    assert registry.counter("a_total", "A", {"y": "2", "x": "1"}) is first
    with pytest.raises(InvariantError):
        registry.gauge("a_total", "A", {"x": "1", "y": "2"})
    with pytest.raises(InvariantError):
        registry.counter("a_total", "A", {"x": "1"})


@given(st.lists(st.floats(min_value=0, max_value=1e6), max_size=50))
def test_histogram_counts_cumulate(values):
    registry = MetricsRegistry()
    histogram = registry.histogram("latency", "Latency")
    for value in values:
        histogram.observe(value)
    samples = parsed(registry)
    for bound in histogram.bounds:
        shown = str(int(bound)) if float(bound).is_integer() else str(bound)
        expected = sum(value <= bound for value in values)
        assert samples["latency_bucket", (("le", shown),)] == expected
    assert samples["latency_bucket", (("le", "+Inf"),)] == len(values)
    assert samples["latency_count", ()] == len(values)
    assert samples["latency_sum", ()] == pytest.approx(sum(values))


@given(st.text(min_size=1, max_size=20).filter(lambda text: "\r" not in text))
def test_label_values_are_escaped(value):
    registry = MetricsRegistry()
    registry.counter("a_total", "help \\ with\nlines", {"topic": value}).value = 5
    safe = value.encode("utf-8", "replace").decode()
    assert parsed(registry)["a_total", (("topic", safe),)] == 5


def test_empty_label_is_left_out():
    registry = MetricsRegistry()
    registry.counter("a_total", "A", {"topic": ""}).value = 1
    registry.counter("a_total", "A", {"topic": "x"}).value = 2
    assert parsed(registry) == {("a_total", ()): 1, ("a_total", (("topic", "x"),)): 2}


def test_removed_series_is_gone():
    registry = MetricsRegistry()
    registry.counter("a_total", "A", {"topic": "x"}).value = 1
    registry.remove("a_total", {"topic": "x"})
    registry.remove("a_total", {"topic": "x"})
    registry.remove("b_total")
    assert parsed(registry) == {}


def test_number_of_series_is_bounded(monkeypatch):
    monkeypatch.setattr(registry_module, "MAX_SERIES", 10)
    registry = MetricsRegistry()
    for number in range(100):
        registry.counter("a_total", "A", {"topic": str(number)}).value += 1
    assert len(parsed(registry)) == 10
    registry.remove("a_total", {"topic": "3"})
    registry.counter("a_total", "A", {"topic": "late"}).value = 7
    assert parsed(registry)["a_total", (("topic", "late"),)] == 7
    assert len(parsed(registry)) == 10


def test_rendering_yields_often_and_survives_changes():
    registry = MetricsRegistry()
    for number in range(5000):
        registry.counter("a_total", "A", {"topic": str(number)})
    slices = render(registry)
    calls = lines = 0

    def count_call(frame, event, argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    for _ in range(10_000):
        calls = 0
        sys.setprofile(count_call)
        try:
            text = next(slices, None)
        finally:
            sys.setprofile(None)
        assert calls < 20 * LINES_PER_SLICE  # 12 a line; a look at every series in one slice would be 5,000 more
        if text is None:
            break
        assert text.count(b"\n") <= LINES_PER_SLICE + 20
        lines += text.count(b"\n")
        registry.remove("a_total", {"topic": str(lines)})
        registry.counter("a_total", "A", {"topic": f"new{lines}"})
    assert lines == 5002
