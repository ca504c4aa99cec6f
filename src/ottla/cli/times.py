"""Times and durations in command line arguments, in milliseconds."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from ottla.common.kafka.integers import MAX_LONG

# Patterns are compiled when a value needs them, and not for help.
_SHORT = r"(?a)(?:(?P<weeks>\d+)w)?(?:(?P<days>\d+)d)?(?:(?P<hours>\d+)h)?(?:(?P<minutes>\d+)m)?(?:(?P<seconds>\d+)s)?"
"""Lower case only: `1M` could be a month."""
_ISO = (
    r"(?ai)P(?:(?P<weeks>\d+)W)?(?:(?P<days>\d+)D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+)(?:[.,](?P<fraction>\d{1,9}))?S)?)?"
)
_CALENDAR = r"(?ai)P?[^T]*\d(?:Y|M)[^T]*(?:T.*)?"
"""ISO 8601 durations with years or months, which have no fixed length."""
_UNIT_MS = {"weeks": 604_800_000, "days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}
MAX_DURATION_CHARS = 40
_WITH_UNIT = r"(?a)(\d{1,18})(ms|s)"
"""Numbers of 18 digits fit in 64 bits."""
_MILLISECONDS = r"(?a)0|\d{13}"
"""Milliseconds without a unit, from 2001 to 2286. Other numbers could be a year, a date, seconds or microseconds."""
TIME_FORMS = (
    "an ISO 8601 time (2026-11-28, 2026-11-28T10:00:00Z), milliseconds since 1970 of 13 digits, or a number with its "
    "unit (1795860000s, 1795860000000ms)"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Seconds(click.FloatRange):
    """A click type: finite seconds, at least `least_s`; NaN is rejected, because a wait for it would never end."""

    name = "seconds"

    def __init__(self, least_s: float = 0.001) -> None:
        super().__init__(min=least_s)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """See `click.ParamType`."""
        seconds = float(super().convert(value, param, ctx))
        if not math.isfinite(seconds):
            self.fail(f"{value!r} is not a number of seconds", param, ctx)
        return seconds


def parse_timestamp(text: str, option: str = "--timestamp") -> int:
    """Milliseconds since the epoch, from one of `TIME_FORMS` (in UTC unless the text has a zone).

    Raises click.BadParameter for other text, for an ambiguous number without a unit, and for a time before 1970,
    because negative times are special values in requests.
    """
    if re.fullmatch(_MILLISECONDS, text):
        return int(text)
    if match := re.fullmatch(_WITH_UNIT, text):
        milliseconds = int(match[1]) * (1000 if match[2] == "s" else 1)
        if milliseconds > MAX_LONG:
            raise click.BadParameter(f"{text!r} is longer than 64 bits of milliseconds", param_hint=option)
        return milliseconds
    if text.isdecimal():
        raise click.BadParameter(f"{text!r} is ambiguous: give {TIME_FORMS}", param_hint=option)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a time: give {TIME_FORMS}", param_hint=option) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    if moment < _EPOCH:
        raise click.BadParameter(f"{text!r} is before 1970, and record timestamps start there", param_hint=option)
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def parse_duration(text: str, option: str = "--by-duration") -> int:
    """Milliseconds of `90s`, `1d12h`, or an ISO 8601 duration such as `PT30M`.

    Raises click.BadParameter for other text, also for years and months, which have no fixed length (like Java's
    Duration.parse).
    """
    match = (re.fullmatch(_SHORT, text) or re.fullmatch(_ISO, text)) if len(text) <= MAX_DURATION_CHARS else None
    parts = {unit: number for unit, number in match.groupdict().items() if number} if match else {}
    if not parts:
        problem = (
            "has years or months, which have no fixed length" if re.fullmatch(_CALENDAR, text) else "is not a duration"
        )
        raise click.BadParameter(f"{text!r} {problem}: give one such as 90s, 1d12h or PT30M", param_hint=option)
    fraction = parts.pop("fraction", "")
    total_ms = sum(int(number) * _UNIT_MS[unit] for unit, number in parts.items()) + int(f"{fraction:0<3}"[:3])
    if total_ms > MAX_LONG:
        raise click.BadParameter(f"{text!r} is longer than 64 bits of milliseconds", param_hint=option)
    return total_ms
