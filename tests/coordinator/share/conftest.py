"""The coordinator of each test."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .conversation import Conversation


@pytest.fixture
def talk() -> Conversation:
    """A coordinator with Kafka's defaults."""
    return Conversation()


@pytest.fixture
def make_talk() -> Callable[..., Conversation]:
    """Makes a coordinator with other settings."""
    return Conversation
