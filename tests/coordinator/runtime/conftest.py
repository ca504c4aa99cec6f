"""The runtime of each test."""

from __future__ import annotations

import pytest

from .harness import Setup


@pytest.fixture
def setup() -> Setup:
    """A runtime that leads nothing yet."""
    return Setup()


@pytest.fixture
def led(setup: Setup) -> Setup:
    """A runtime that leads partition 0."""
    setup.lead()
    return setup
