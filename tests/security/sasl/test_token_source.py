"""Expiry of a token, as stated in it."""

from __future__ import annotations

import base64
import json

import pytest

from ottla.security.sasl.token_source import LIFE_S, ends_of

NOW_S = 1_800_000_000.0


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (NOW_S + 60, NOW_S + 60),
        (0, 0.0),  # expired, like one that ends at 1
        (-5, 0.0),
        (1, 1.0),
        (None, NOW_S + LIFE_S),
        (True, NOW_S + LIFE_S),
        ("soon", NOW_S + LIFE_S),
        (2**40, NOW_S + LIFE_S),
        (float("nan"), NOW_S + LIFE_S),
    ],
)
def test_token_expiry_is_read_from_the_token(end: object, expected: float) -> None:
    payload = base64.urlsafe_b64encode(json.dumps({"exp": end}).encode()).decode().rstrip("=")
    assert ends_of(f"e30.{payload}.c2ln", NOW_S) == expected
