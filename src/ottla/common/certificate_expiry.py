"""Days before the expiry of a certificate at which brokers and tools warn."""

from __future__ import annotations

WARNING_DAYS, ERROR_DAYS = 30, 7
DAY_S = 86_400


def days_left(expiry_s: float, now_s: float) -> int:
    """Whole days until the expiry; negative after it. Both are seconds since the epoch."""
    return int((expiry_s - now_s) // DAY_S)


def date_text(time_s: float) -> str:
    """The UTC date of a time: `2027-03-01`."""
    from datetime import UTC, datetime  # imported here: only a warning needs it

    return datetime.fromtimestamp(time_s, UTC).date().isoformat()
