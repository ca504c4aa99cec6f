"""Refresh times of expiring credentials."""

from __future__ import annotations

import pytest

from ottla.security.sasl.refresh import RefreshWindow


class Chance:
    """The same share of any range, each time."""

    def __init__(self, share: float) -> None:
        self._share = share

    def random_bytes(self, count: int) -> bytes:
        raise AssertionError("nothing is secret")

    def randrange(self, stop: int) -> int:
        return int(self._share * stop)


@pytest.mark.parametrize(
    ("window", "life_s", "share", "wait_s"),
    [
        (RefreshWindow(0.8, 0.05, 60), 36_000, 0.0, 28_800),
        (RefreshWindow(0.8, 0.05, 60), 36_000, 0.5, 29_700),
        (RefreshWindow(0.5, 0.0, 60), 100, 0.0, 60),
        (RefreshWindow(0.8, 0.0, 60), 60, 0.0, 60),
        (RefreshWindow(0.8, 0.0, 60), 10, 0.0, 8),
        (RefreshWindow(1.0, 1.0, 60), 100, 0.9, 100),
        (RefreshWindow(1.0, 1.0, 200), 100, 0.9, 100),
        (RefreshWindow(0.0, 0.0, 0), 100, 0.9, 0),
        (RefreshWindow(0.8, 0.0, 60, 300), 3600, 0.0, 2880),
        (RefreshWindow(1.0, 0.25, 60, 300), 3600, 0.9, 3300),
        (RefreshWindow(0.8, 0.0, 60, 300), 360, 0.0, 60),
        (RefreshWindow(0.8, 0.0, 60, 300), 359, 0.0, 287.2),
    ],
)
def test_refresh_time_is_a_bounded_share_of_the_lifetime(
    window: RefreshWindow, life_s: float, share: float, wait_s: float
) -> None:
    assert window.wait_s(life_s, Chance(share)) == pytest.approx(wait_s)
