"""Texts of numbers, sizes, times and untrusted bytes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from ottla.common.control_chars import escape_control_chars

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
MAX_SHOWN_CHARS = 20_000
"""Longer values are cut; the download has all of them."""


def number(value: int | None) -> str:
    """A number with separators, a dash for None."""
    return "-" if value is None else f"{value:,}"


def size(size_bytes: int | None) -> str:
    """A size in the largest decimal unit below it."""
    if size_bytes is None:
        return "-"
    value, unit = float(size_bytes), 0
    while value >= 1000 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{size_bytes} B" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"


def duration(seconds: float) -> str:
    """A duration in its two largest units."""
    left, parts = max(0, int(seconds)), []
    for letter, length in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, left = divmod(left, length)
        if count:
            parts.append(f"{count} {letter}")
    return " ".join(parts[:2]) or "0 s"


def moment(timestamp_ms: int) -> str:
    """A time as `2026-11-28 10:00:00.000` in UTC; the number for one that a date cannot have."""
    try:
        found = _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return str(timestamp_ms)
    return found.strftime("%Y-%m-%d %H:%M:%S.") + f"{found.microsecond // 1000:03d}"


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """`1 record`, `2,500 records`."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def ids(values: object) -> str:
    """Broker or partition ids, separated by commas."""
    return ", ".join(str(each) for each in values) or "none" if isinstance(values, (list, tuple, set)) else "none"


def visible(text: str) -> str:
    """Untrusted text with control characters, changes of the text direction and lone surrogates as escapes."""
    return encodable(escape_control_chars(text))


def encodable(text: str) -> str:
    """Text with lone surrogates, as in file names that are not UTF-8, as escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


def cut(text: str, most: int = MAX_SHOWN_CHARS) -> tuple[str, int]:
    """At most `most` characters, and the number of those left out."""
    return text[:most], max(0, len(text) - most)


def rate(per_s: float | None) -> str:
    """A rate per second: `0`, `0.4`, `1,250`; a dash if it is unknown."""
    if per_s is None:
        return "-"
    return f"{per_s:,.1f}" if 0 < per_s < 9.95 and per_s != int(per_s) else f"{per_s:,.0f}"


def byte_rate(per_s: float | None) -> str:
    """Bytes per second as a size."""
    return "-" if per_s is None else f"{size(round(per_s))}/s"


def wait(seconds: float | None) -> str:
    """A duration that may be unknown."""
    return "-" if seconds is None else duration(seconds)
