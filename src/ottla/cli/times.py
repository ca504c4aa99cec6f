"""Moments and spans of time as one writes them on a command line, in milliseconds."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import click

from ottla.common.config_def import MAX_LONG

_DURATION = re.compile(
    r"P?(?:(?P<weeks>\d+)W)?(?:(?P<days>\d+)D)?T?(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+)S)?",
    re.ASCII | re.IGNORECASE,
)
_UNIT_MS = {"weeks": 604_800_000, "days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}
MAX_DURATION_CHARS = 40
MAX_TIMESTAMP_DIGITS = 18
"""So that it fits into 64 bits, whatever the digits."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_timestamp(text: str, option: str = "--timestamp") -> int:
    """Milliseconds since the epoch, from such a number or an ISO 8601 time (UTC unless it says otherwise).

    Raises click.BadParameter, also for what lies before 1970: in requests, negative times mean something else.
    """
    if text.isascii() and text.isdigit() and len(text) <= MAX_TIMESTAMP_DIGITS:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is neither milliseconds nor an ISO 8601 time", param_hint=option) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    if moment < _EPOCH:
        raise click.BadParameter(f"{text!r} lies before 1970, where the times of records begin", param_hint=option)
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def parse_duration(text: str, option: str = "--by-duration") -> int:
    """Milliseconds of `90s`, `1d12h` or an ISO 8601 duration such as `PT30M`."""
    match = _DURATION.fullmatch(text) if len(text) <= MAX_DURATION_CHARS else None
    parts = {unit: int(number) for unit, number in match.groupdict().items() if number} if match else {}
    if not parts:
        raise click.BadParameter(f"{text!r} is not a duration such as 90s, 1d12h or PT30M", param_hint=option)
    total_ms = sum(number * _UNIT_MS[unit] for unit, number in parts.items())
    if total_ms > MAX_LONG:
        raise click.BadParameter(f"{text!r} is longer than 64 bits of milliseconds", param_hint=option)
    return total_ms


def duration_text(duration_ms: int) -> str:
    """A span as `parse_duration` reads it, in its two largest units: `1d2h`, `15m3s`, `0s`."""
    left, parts = max(0, duration_ms) // 1000, []
    for letter, seconds in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        count, left = divmod(left, seconds)
        if count:
            parts.append(f"{count}{letter}")
    return "".join(parts[:2]) or "0s"
