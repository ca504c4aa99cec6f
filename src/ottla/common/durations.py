"""Durations as text."""

from __future__ import annotations


def duration_text(duration_ms: int) -> str:
    """A duration in its two largest units, as `ottla.cli.times.parse_duration` reads it: `1d2h`, `15m3s`, `0s`."""
    left, parts = max(0, duration_ms) // 1000, []
    for letter, seconds in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        count, left = divmod(left, seconds)
        if count:
            parts.append(f"{count}{letter}")
    return "".join(parts[:2]) or "0s"
