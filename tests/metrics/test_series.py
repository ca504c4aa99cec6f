"""Collectors: families that are computed while a scrape is rendered."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.parser import text_string_to_metric_families

from ottla.metrics.exposition import LINES_PER_SLICE, render
from ottla.metrics.registry import MetricsRegistry
from ottla.metrics.series import FamilyStart, Rate, Step, label_text
from ottla.metrics.spellings import spelling


def collect() -> Iterator[Step]:
    yield FamilyStart("sizes", "Sizes \\ with\nlines")
    yield label_text((("topic", 'a "b"'), ("other", ""))), 3
    yield None
    yield FamilyStart("times", "Times", "summary")
    yield '{quantile="0.5"}', 0.25
    yield "_sum", 4.0
    yield "_count", 2


def test_families_of_collectors_follow_those_of_the_registry() -> None:
    registry = MetricsRegistry()
    registry.counter("a_total", "A").value = 1
    text = b"".join(render(registry, [collect])).decode()
    families = {each.name: each for each in text_string_to_metric_families(text)}
    assert [(each.name, each.labels, each.value) for each in families["sizes"].samples] == [
        ("sizes", {"topic": 'a "b"'}, 3)
    ]
    assert families["sizes"].documentation == "Sizes \\ with\nlines"
    assert families["times"].type == "summary"
    assert [each.value for each in families["times"].samples] == [0.25, 4, 2]
    assert text.startswith("# HELP a_total")


def test_spelling_applies_to_registry_and_collectors() -> None:
    registry = MetricsRegistry()
    registry.gauge("a", "A")
    text = b"".join(render(registry, [collect], str.upper)).decode()
    assert {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")} == {"A", "SIZES", "TIMES"}
    assert "TIMES_count 2\n" in text


def test_spelling_applies_to_labels_of_the_registry() -> None:
    registry = MetricsRegistry()
    registry.gauge("lag", "Lag", {"clientId": "Replica"})
    text = b"".join(render(registry, (), spelling("confluent"))).decode()
    assert text.endswith('lag{clientid="Replica"} 0\n')
    assert b'clientId="Replica"' in b"".join(render(registry, (), spelling("strimzi")))


def test_rendering_pauses_in_steps_without_samples() -> None:
    def silent() -> Iterator[Step]:
        for _ in range(10 * LINES_PER_SLICE):
            yield None
        yield FamilyStart("last", "Last")

    slices = list(render(MetricsRegistry(), [silent]))
    assert slices[:-1] == [b""] * 10
    assert slices[-1].startswith(b"# HELP last")


def test_rate_covers_at_least_its_shortest_time() -> None:
    rate = Rate(10.0, now_s=100.0, value=5)
    assert rate.measure(109.0, 50) == 0
    assert rate.measure(110.0, 105) == 10
    assert rate.measure(115.0, 900) == 10
    assert rate.measure(130.0, 105) == 0
    assert rate.measure(140.0, 3) == 0, "a value that fell, as after a truncation"
