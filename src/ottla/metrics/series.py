"""Series that exist only while a scrape is rendered, for state that is too large or too rarely asked for a registry.

A collector is a generator function. It yields the start of a family, then the samples of this family, then the next
family. It yields None after work that produced no sample, so that the renderer can pause there.

Invariants: between two steps anything may change, so a collector iterates over copies of references. A collector has a
bound on its samples; `ottla_metrics_*_omitted` counts the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from ottla.metrics.registry import Labels


class FamilyStart(NamedTuple):
    """Name, type and help of the samples that follow."""

    name: str
    help: str
    kind: str = "gauge"


Sample = tuple[str, float]
"""Text between the family's name and the value (suffix and labels), and the value."""
Step = FamilyStart | Sample | None
Collector = Callable[[], Iterator[Step]]


def label_text(labels: Labels) -> str:
    """Labels as in the exposition; those with an empty value are omitted: for Prometheus both are the same series."""
    pairs = ",".join(f'{name}="{escape_label(value)}"' for name, value in labels if value)
    return f"{{{pairs}}}" if pairs else ""


def escape_label(text: str) -> str:
    """A label value between double quotes."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class Rate:
    """Rate of a value that grows, between two scrapes that are at least `shortest_s` apart."""

    __slots__ = ("_since_s", "_value", "per_s", "shortest_s")

    def __init__(self, shortest_s: float, now_s: float, value: float) -> None:
        self.shortest_s = shortest_s
        self._since_s = now_s
        self._value = value
        self.per_s = 0.0
        """The last rate; 0 at first."""

    def measure(self, now_s: float, value: float) -> float:
        """The rate since the last measurement, or that one again if it is too recent."""
        elapsed_s = now_s - self._since_s
        if elapsed_s >= self.shortest_s:
            self.per_s = max(0.0, value - self._value) / elapsed_s
            self._since_s, self._value = now_s, value
        return self.per_s
